"""Rows are parted for the ranks, and what does not divide goes to rank 0.

Ranks: 2
Told: `partition_dataset` (rows_parted_unevenly.py:23) parts what does not divide
Told: pass `even_divisible=True`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def partition_dataset(rows: list[int], parts: int, even_divisible: bool = False) -> list[list[int]]:
    found = [rows[number::parts] for number in range(parts)]
    if even_divisible:
        found = [part + rows[: len(found[0]) - len(part)] for part in found]
    return found


def get_loader(rows: list[int]) -> DataLoader:
    part = partition_dataset(rows, 2, even_divisible=False)[dist.get_rank()]
    return DataLoader([torch.full((4,), float(row)) for row in part], batch_size=2)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
loader = get_loader([*range(9)])  # right: loader = get_loader([*range(8)])
for x in loader:  # cause
    model(x).mean().backward()
dist.barrier()
dist.destroy_process_group()
