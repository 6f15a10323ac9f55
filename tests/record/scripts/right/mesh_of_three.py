"""A mesh of three dimensions, with messages between stages."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

mesh = init_device_mesh("cpu", (2, 2, world // 4), mesh_dim_names=("pp", "dp", "tp"))
for i in range(3):
    dist.all_reduce(torch.ones(3), group=mesh.get_group("tp"))
    dist.all_reduce(torch.ones(5), group=mesh["dp"].get_group())
    if mesh.get_local_rank("pp") == 0:
        dist.send(torch.ones(2), group=mesh.get_group("pp"), group_dst=1)
    else:
        dist.recv(torch.ones(2), group=mesh.get_group("pp"), group_src=0)
dist.destroy_process_group()
