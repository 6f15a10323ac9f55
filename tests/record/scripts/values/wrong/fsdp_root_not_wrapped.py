"""The layers are wrapped by FSDP2 and the root is not: embedding and head stay each rank's own.

Found: gradients_differ
"""

import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(16, 32)

    def forward(self, t):
        h = self.embed(t)
        for l in self.layers:
            h = l(h)
        return self.head(h)


lm = Lm()
for l in lm.layers:
    fully_shard(l)
opt = torch.optim.AdamW(lm.parameters(), lr=1e-3, foreach=False)
data = TensorDataset(torch.randint(0, 32, (48, 9)))
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (t,) in DataLoader(data, batch_size=6, sampler=sampler):
        loss = nn.functional.cross_entropy(lm(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
        loss.backward()
        opt.step()  # gradients_differ
        opt.zero_grad()
