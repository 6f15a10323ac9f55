"""Tensor parallel in two replicas: rank 0 generates a sample, its TP partner does not.

Ranks: 4
Told: rank 0 alone goes into `if dist.get_rank() == 0`
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 8)
        self.down = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


model = parallelize_module(MLP(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})


def generate(model, n):
    x = torch.ones(1, 4)
    for _ in range(n):
        x = model(x)
    return x


for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    for p in model.parameters():
        g = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
        dist.all_reduce(g, group=mesh.get_group("dp"))
    if dist.get_rank() == 0:  # cause  # right: if dist.get_rank() < 2:
        generate(model, 2)
dist.barrier()
