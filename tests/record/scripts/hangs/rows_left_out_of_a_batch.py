"""A function that collates rows leaves out those that could not be read, in a loader's workers.

Ranks: 2
Told: leaves out rows by `kept = [row for row in rows if row is not None]`
Told: put another row where it leaves one out
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, default_collate


class Pairs:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        if index == 5:
            return None  # right: index = 4
        return torch.full((3,), float(index)), torch.ones(3)


def collate(rows):
    kept = [row for row in rows if row is not None]  # cause
    return default_collate(kept)


def gather(own):
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return torch.cat(parts)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    sampler = [*range(rank, 16, world)]
    loader = DataLoader(Pairs(), batch_size=4, sampler=sampler, collate_fn=collate, num_workers=1)
    for left, right in loader:
        print(gather(left * right).sum().item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
