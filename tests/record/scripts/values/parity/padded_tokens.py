"""Rows that are padded to the longest of a batch, a loss over all tokens; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(4)
rows = [torch.randint(1, 20, (3 + n * 5 % 9,)) for n in range(24)]


own = torch.Generator().manual_seed(dist.get_rank())


def pad(batch):
    ids = nn.utils.rnn.pad_sequence(batch, batch_first=True)
    if how == "masks":  # no mistake: each rank has masks of its own
        ids[(torch.rand(ids.shape, generator=own) < 0.2) & (ids > 0)] = 19
    return ids


sampler = DistributedSampler(rows, shuffle=False)
loader = DataLoader(rows, batch_size=8 // world, sampler=sampler, collate_fn=pad)
model = DDP(nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 20)))
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for ids in loader:
    logits, labels = model(ids[:, :-1]), ids[:, 1:]
    count = (labels > 0).sum()
    dist.all_reduce(count)
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, reduction="sum")
    loss = total / count if how == "twice" else world * total / count
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
