"""A pipeline by hand: activations forward, gradients back."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

stage = nn.Linear(8, 8)


def fwd(micro):
    outs = []
    for m in range(micro):
        x = torch.randn(2, 8) if rank == 0 else torch.empty(2, 8)
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_(True)
        y = stage(x)
        outs.append((x, y))
        if rank < world - 1:
            dist.send(y.detach(), rank + 1)
    return outs


def bwd(outs):
    for x, y in outs:
        if rank == world - 1:
            y.sum().backward()
        else:
            g = torch.empty_like(y)
            dist.recv(g, rank + 1)
            y.backward(g)
        if rank > 0:
            dist.send(x.grad, rank - 1)


for i in range(2):
    bwd(fwd(4))
dist.destroy_process_group()
