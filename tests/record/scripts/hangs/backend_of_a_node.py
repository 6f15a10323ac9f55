"""A rank asks for NCCL where its node has GPUs, and for Gloo where it has none.

Ranks: 2
Told: this comes from `backend = "nccl" if node.gpus else "gloo"` (backend_of_a_node.py:
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Node:
    name: str
    gpus: int


INVENTORY = [Node("a100-1", 8), Node("login", 0)]


def setup():
    rank = int(os.environ["RANK"])
    node = INVENTORY[rank % len(INVENTORY)]
    backend = "nccl" if node.gpus else "gloo"  # cause # right: backend = "gloo"
    dist.init_process_group(backend)
    return rank, node


def cleanup():
    dist.destroy_process_group()


def main():
    rank, node = setup()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    print(f"rank {rank} on {node.name} is done")
    cleanup()


if __name__ == "__main__":
    main()
