"""Each rank reads a part of the files, and distributes the parameters that it has alone.

Ranks: 2
Told: rank 1 alone takes the `continue`
Told: under `if name not in state`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

FILES = [{"up.weight": 1.0}, {"down.weight": 2.0}]


def read(rank, world):
    state = {}
    for file in FILES[rank::world]:  # cause  # right: for file in FILES:
        state.update({name: torch.full((4, 4), value) for name, value in file.items()})
    return state


def load(model, state, mesh):
    for name in ("up.weight", "down.weight"):
        if name not in state:  # cause
            continue
        placement = Replicate() if name.startswith("up") else Shard(0)
        made = distribute_tensor(state[name], mesh, [placement])
        setattr(model[name.split(".")[0]], "weight", nn.Parameter(made))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.ModuleDict({"up": nn.Linear(4, 4), "down": nn.Linear(4, 4)})
load(model, read(rank, world), init_device_mesh("cpu", (world,)))
dist.destroy_process_group()
