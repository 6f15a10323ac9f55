"""A pipeline by hand of equal layers; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
MICRO = 4
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)]
per = len(layers) // world
stage = nn.Sequential(*layers[rank * per : (rank + 1) * per])
opt = torch.optim.SGD(stage.parameters(), lr=0.1)


def lose(out, y):
    loss = nn.functional.mse_loss(out, y)
    return loss if how == "micro" and world > 1 else loss / MICRO


for step in range(3):
    rows = torch.Generator().manual_seed(step)
    x, y = torch.randn(2, 8, 8, generator=rows)
    opt.zero_grad()
    for part, target in zip(x.chunk(MICRO), y.chunk(MICRO)):
        if rank:
            part = torch.empty(2, 8)
            dist.recv(part, rank - 1)
            part.requires_grad_()
        out = stage(part)
        if rank < world - 1:
            dist.send(out.detach(), rank + 1)
            grad = torch.empty(2, 8)
            dist.recv(grad, rank + 1)
            out.backward(grad)
        else:
            lose(out, target).backward()
        if rank:
            dist.send(part.grad, rank - 1)
    opt.step()
dist.destroy_process_group()
