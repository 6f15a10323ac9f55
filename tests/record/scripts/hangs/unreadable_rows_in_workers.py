"""A dataset goes past rows that cannot be read, in the loader's workers.

Ranks: 2
Told: items are left out by `except UnreadableError` (unreadable_rows_in_workers.py:
Told: as the one that has the fewest items left
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class UnreadableError(ValueError):
    """A row has no end."""


def read(number):
    if number % 8 in {1, 5}:
        raise UnreadableError(number)
    return torch.full((2,), float(number))


class Rows(IterableDataset):
    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        info = get_worker_info()
        for number in self.numbers[info.id :: info.num_workers]:
            try:
                yield read(number)
            except UnreadableError:  # cause
                print("left out", number)  # right: yield torch.zeros(2)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Rows([*range(32)][rank::world]), batch_size=2, num_workers=2)
    model = DDP(nn.Linear(2, 1))
    for rows in loader:
        model(rows).mean().backward()
    dist.barrier()
    dist.destroy_process_group()


main()
