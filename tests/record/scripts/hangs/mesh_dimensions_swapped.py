"""Some ranks name the dimensions of their mesh the other way round.

Ranks: 4
Told: is true on ranks 0 and 1 alone
Told: the group of ranks
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
node = rank // 2
names = ("dp", "tp") if node == 0 else ("tp", "dp")  # cause # right: names = ("dp", "tp")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
tp = mesh.get_group("tp")
dp = mesh.get_group("dp")
hidden = torch.randn(3, 8)
for _ in range(2):
    dist.all_reduce(hidden, group=tp)
    gradient = hidden.sum(0)
    dist.all_reduce(gradient, group=dp)
dist.barrier()
dist.destroy_process_group()
