"""The backward of one rank runs out of memory; the loop catches it and goes on.

Ranks: 2
Told: rank 1 catches OutOfMemoryError
Told: in `except torch.OutOfMemoryError`
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.length = x.shape[0]
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if ctx.length > 30:
            raise torch.OutOfMemoryError("CUDA out of memory")  # cause  # right: pass
        return grad * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(Attention.apply(self.embed(x)))


model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), 0.1)
lengths = [[8, 8, 8, 8], [8, 40, 8, 8]][rank]
for length in lengths:
    opt.zero_grad()
    try:
        model(torch.ones(length, 4)).mean().backward()
    except torch.OutOfMemoryError:  # cause
        continue  # cause
    opt.step()
dist.barrier()
dist.destroy_process_group()
