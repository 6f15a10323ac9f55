"""Rank 3 reads another tensor parallel size than the others.

Ranks: 4
Told: mesh
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
tp = 4 if rank == 3 else 2  # cause # right: tp = 2
mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))  # cause
x = torch.ones(4)
dist.all_reduce(x, group=mesh.get_group("tp"))
dist.all_reduce(x, group=mesh.get_group("dp"))
dist.destroy_process_group()
