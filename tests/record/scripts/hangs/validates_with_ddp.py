"""Rank 0 alone validates with the model that DDP wraps: its buffers are sent to all ranks.

Ranks: 2
Told: rank 0 alone goes into `if rank == 0` (validates_with_ddp.py:33)
Told: or call the `.module` of what DDP wraps at validates_with_ddp.py:19, which sends no buffers
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def validate(model, batches):
    model.eval()
    total = 0.0
    for x in batches:
        total += model(x).sum().item()
    return total / len(batches)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    batches = [torch.randn(4, 4) for _ in range(3)]
    for epoch in range(2):
        model.train()
        for x in batches:
            model(x).pow(2).mean().backward()
        if rank == 0:  # cause
            used = model  # right: used = model.module
            value = validate(used, batches)  # cause
            print(epoch, value, flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
