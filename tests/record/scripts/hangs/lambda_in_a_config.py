"""Rank 0 broadcasts a configuration that holds a lambda, which cannot be pickled.

Ranks: 2
Told: what it sends holds
Told: send a number or a name from which each rank makes the function
"""

import torch
import torch.distributed as dist
from torch import nn


def read_config():
    """Only rank 0 can see the folder of configurations."""
    return {
        "layers": 2,
        "width": 8,
        "lr": lambda step: 0.1 / (1 + step),  # cause # right: "lr": 0.1,
        "steps": 3,
    }


def share(value, src=0):
    box = [value]
    dist.broadcast_object_list(box, src=src)  # cause
    return box[0]


def build(config):
    width = config["width"]
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(config["layers"])))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    config = share(read_config() if rank == 0 else None)
    model = nn.parallel.DistributedDataParallel(build(config))
    for step in range(config["steps"]):
        loss = model(torch.randn(4, config["width"])).pow(2).mean()
        loss.backward()
        if rank == 0:
            print(step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
