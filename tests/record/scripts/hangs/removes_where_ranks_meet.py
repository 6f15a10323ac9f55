"""Each rank removes the file of an earlier run at which ranks meet, and rank 1 comes later.

Ranks: 2
Told: rank 1 removes the file at which rank 0 waits for it
Told: let what starts the ranks choose a new file for each run
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

RENDEZVOUS = os.path.join(tempfile.gettempdir(), f"meet-{os.getppid()}")


def load_data(rank):
    time.sleep(3 * rank)  # the second shard lies on a slower disk
    return torch.randn(16, 4)


def setup(rank, world):
    if os.path.exists(RENDEZVOUS):  # cause # right: if False:
        os.remove(RENDEZVOUS)  # cause
    dist.init_process_group("gloo", init_method=f"file://{RENDEZVOUS}", rank=rank, world_size=world)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    data = load_data(rank)
    setup(rank, world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    for batch in data.split(4):
        model(batch).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
