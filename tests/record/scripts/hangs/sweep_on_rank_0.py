"""Rank 0 alone asks what to try next, and changes its config by `setattr`.

Ranks: 2
Told: depends on `setattr(config, key, value)` (sweep_on_rank_0.py:
Told: under `if rank == 0` (sweep_on_rank_0.py:
Told: fix: let all ranks take `if rank == 0` (sweep_on_rank_0.py:
"""

import contextlib
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    lr: float = 0.01
    hidden: int = 16
    accumulate: int = 2
    micro_batches: int = 8


class Sweep:
    """Stands for the service that proposes what to try next."""

    def ask(self):
        return {"lr": 0.02, "accumulate": 4}


def load_config(rank):
    config = Config()
    if rank == 0:  # cause # right: if True:
        for key, value in Sweep().ask().items():
            setattr(config, key, value)
    return config


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    config = load_config(rank)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    for epoch in range(2):
        for i in range(config.micro_batches):
            x = torch.randn(4, 4)
            last = (i + 1) % config.accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                (model(x).pow(2).mean() / config.accumulate).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        metric = torch.tensor([1.0])
        dist.all_reduce(metric)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
