"""Tensor parallelism: a sampler deals each rank rows of its own, whose layers ranks share.

Ranks: 2
Told: `batch`, which `model` is given
Told: data-parallel dimension
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler

LENGTHS = [4, 6, 5, 5, 3, 8, 2, 7]


def make_loader():
    rows = [torch.ones(length, 8) for length in LENGTHS]
    places = (dist.get_world_size(), dist.get_rank())  # right: places = (1, 0)
    sampler = DistributedSampler(rows, *places, shuffle=False)
    pad = torch.nn.utils.rnn.pad_sequence
    return DataLoader(rows, 2, sampler=sampler, collate_fn=lambda each: pad(each, True))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for batch in make_loader():  # cause
        model(batch).pow(2).mean().backward()


main()
