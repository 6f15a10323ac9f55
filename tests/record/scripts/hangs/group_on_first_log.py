"""A mesh is flattened where rank 0 logs first, and by all others behind the loop.

Ranks: 4
Told: circular_wait
Told: rank 0 alone goes into `if rank == 0 and step == 1`
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class Parallel:
    def __init__(self) -> None:
        self.world = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("dp", "cp", "tp"))
        self.loss = None

    @property
    def loss_mesh(self):
        if self.loss is None:
            self.loss = self.world["dp", "cp"]._flatten("dp_cp")  # cause
        return self.loss


dist.init_process_group("gloo")
rank = dist.get_rank()
parallel = Parallel()
parallel.world  # right: parallel.loss_mesh
for step in range(4):
    grad = torch.ones(4) * rank
    dist.all_reduce(grad, group=parallel.world["dp"].get_group())
    dist.all_reduce(grad, group=parallel.world["tp"].get_group())
    if rank == 0 and step == 1:  # cause
        print("the loss is averaged over", parallel.loss_mesh.size())
dist.all_reduce(torch.tensor(1.0), group=parallel.loss_mesh.get_group())
dist.destroy_process_group()
