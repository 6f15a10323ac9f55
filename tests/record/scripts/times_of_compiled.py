"""A gated layer, compiled with --compiled: silu's result is in registers alone."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

dist.init_process_group("gloo")


class Gated(nn.Module):
    """Two products, one through silu, and a third of both: 8,192 rows of 4,096 between them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(1024, 4096, bias=False) for _ in range(2))
        self.down = nn.Linear(4096, 1024, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


model = nn.Sequential(*(Gated() for _ in range(4)))
if "--compiled" in sys.argv:
    for layer in model:
        layer.compile()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(8192, 1024)).sum().backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
