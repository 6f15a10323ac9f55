"""Collectives and objects in subgroups, by group ranks."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = dist.new_group([0, 1])
h = dist.new_group([2, 3])
t = torch.ones(1)
dist.all_reduce(t, group=g if rank < 2 else h)
mine, _ = dist.new_subgroups(2)
dist.broadcast(t, group=mine, group_src=0)
dist.reduce(t, group=mine, group_dst=1)
out = [torch.zeros(1) for _ in range(2)]
dist.all_gather(out, t, group=mine)
l = [None, None]
dist.all_gather_object(l, {"a": rank}, group=mine)
dist.scatter(t, [torch.ones(1)] * 2 if rank % 2 == 0 else None, group=mine, group_src=0)
g2 = out if rank % 2 == 1 else None
dist.gather(t, g2, group=mine, group_dst=1)
evens = dist.new_group([0, 2])
if rank in (0, 2):
    dist.broadcast(t, src=2, group=evens)
    if rank == 0:
        dist.send(t, group_dst=1, group=evens)
    else:
        dist.recv(t, group_src=0, group=evens)
objs = [{"x": 1}] if rank == 0 else [None]
dist.broadcast_object_list(objs, src=0)
s = [None]
dist.scatter_object_list(s, [1, 2, 3, 4] if rank == 0 else None, src=0)
o = [None] * world if rank == 0 else None
dist.gather_object(rank, o, dst=0)
dist.barrier(group=mine)
dist.destroy_process_group()
