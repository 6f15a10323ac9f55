"""A batch sampler of rows of equal length; ranks take every n-th batch; sizes differ."""

import random
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
random.seed(0)
torch.manual_seed(0)
rows = [torch.randn(random.randint(2, 6), 5) for _ in range(64)]


class Buckets:
    def __init__(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = sorted(range(64), key=lambda i: len(rows[i]))
        batches = [order[i : i + 4] for i in range(0, 64, 4)]
        random.Random(self.epoch).shuffle(batches)
        yield from batches[rank::world]

    def __len__(self):
        return 16 // world


def collate(b):
    return nn.utils.rnn.pad_sequence(b, batch_first=True)


net = DDP(nn.Linear(5, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(2):
    for x in DataLoader(rows, batch_sampler=Buckets(epoch), collate_fn=collate):
        opt.zero_grad()
        ((net(x).squeeze(-1) * (x != 0).any(-1)).pow(2).sum() / len(x)).backward()
        opt.step()
dist.destroy_process_group()
