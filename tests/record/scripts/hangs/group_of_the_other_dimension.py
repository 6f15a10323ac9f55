"""One rank of each row comes to a line that passes the group of its row, where columns are meant.

Ranks: 4
Told: and are a group themselves: that of ranks 0, 2
Told: fix: pass the group of ranks 0, 2 at group_of_the_other_dimension.py:
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


class Meter:
    def __init__(self, mesh):
        self.mesh = mesh
        self.is_first = mesh.get_local_rank("columns") == 0

    def update(self, loss):
        if not self.is_first:
            return
        mean, name = loss.clone(), "columns"  # right: mean, name = loss.clone(), "rows"
        dist.all_reduce(mean, group=self.mesh[name].get_group())  # cause


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    meter = Meter(mesh)
    weight = torch.ones(3)
    for step in range(3):
        parts = [torch.empty(3) for _ in range(2)]
        dist.all_gather(parts, weight, group=mesh["columns"].get_group())
        dist.all_reduce(weight, group=mesh["rows"].get_group())
        meter.update(weight.mean())
    dist.destroy_process_group()


main()
