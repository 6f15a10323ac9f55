"""The root of a row of a mesh is written as 0, which the second row has not.

Ranks: 4
Told: ranks 2 and 3 raise ValueError: Global rank 0 is not part of group
Told: and rank 0 is not in [2, 3]: for its rank 0 write `src=2`, or `group_src=0`.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    row = mesh["tp"].get_group()
    x = torch.ones(2)
    dist.broadcast(x, src=0, group=row)  # cause # right: dist.broadcast(x, group_src=0, group=row)
    dist.all_reduce(x, group=mesh["dp"].get_group())
    dist.destroy_process_group()


main()
