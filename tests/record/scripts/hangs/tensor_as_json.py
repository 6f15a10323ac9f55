"""Rank 0 writes what it logs as JSON, and one of the values is a tensor.

Ranks: 2
Told: `norm` (tensor_as_json.py:
Told: fix: write a plain number at tensor_as_json.py:
"""

import json

import torch
import torch.distributed as dist
from torch import nn


class Log:
    def __init__(self, rank):
        self.lines = [] if rank == 0 else None

    def write(self, **values):
        if self.lines is not None:
            self.lines.append(json.dumps(values))


def main():
    dist.init_process_group("gloo")
    log = Log(dist.get_rank())
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    for step in range(2):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # cause
        log.write(step=step, norm=norm)  # right: log.write(step=step, norm=norm.item())
    dist.barrier()
    dist.destroy_process_group()


main()
