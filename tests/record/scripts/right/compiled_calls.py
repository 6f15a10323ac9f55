"""Collectives inside of compiled functions."""

import os, torch
import torch.distributed as dist
from torch import nn
import torch.distributed._functional_collectives as fc

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


@torch.compile(backend="aot_eager")
def f(x):
    y = x * 2
    y = fc.all_reduce(y, "sum", dist.group.WORLD)
    return y + 1


for i in range(3):
    f(torch.ones(4))


@torch.compile(backend="aot_eager")
def g(x):
    dist.all_reduce(x)
    return x + 1


g(torch.ones(4))
dist.destroy_process_group()
