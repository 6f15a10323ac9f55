"""Whole shards are dealt to the workers of all loaders, and there are not as many for each.

Ranks: 2
Told: which depends on `for shard in self.shards[first :: self.world * workers]`
Told: `drop_last=True` evens nothing out here
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, shards, rank, world):
        self.shards, self.rank, self.world = shards, rank, world

    def __iter__(self):
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        first = self.rank * workers + number
        for shard in self.shards[first :: self.world * workers]:  # cause
            for row in range(8):
                yield torch.full((2,), float(10 * shard + row))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shards = [*range(5)]  # right: shards = [*range(4)]
    loader = DataLoader(Shards(shards, rank, world), batch_size=4, num_workers=2)
    model = DDP(nn.Linear(2, 1))
    seen = torch.zeros(1, dtype=torch.int64)
    for rows in loader:
        model(rows).mean().backward()
        seen += len(rows)
    dist.all_reduce(seen)
    dist.destroy_process_group()


main()
