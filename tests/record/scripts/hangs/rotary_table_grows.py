"""A table of angles grows with the longest batch of each rank, and DDP broadcasts it as a buffer.

Ranks: 2
Told: rank 0 passes the buffers with cos [12, 6]; rank 1 passes the buffers with cos [16, 6]
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.angles = torch.arange(1.0, dim + 1) / dim
        self.register_buffer("cos", torch.ones(8, dim))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        length = x.shape[1]  # right: length = 64
        if length > len(self.cos):
            self.cos = torch.outer(torch.arange(float(length)), self.angles).cos()  # cause
        return self.proj(x * self.cos[: x.shape[1]])


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(Rotary(6))
optimizer = torch.optim.AdamW(model.parameters())
for length in [(8, 12, 20, 8), (8, 16, 24, 8)][rank]:
    loss = model(torch.randn(2, length, 6)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
