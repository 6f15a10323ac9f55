"""A subset that a class of torch's keeps has the shards of each rank, which have other lengths.

Ranks: 2
Told: batches on rank 1; what it is given comes from `epoch = Epoch(dataset=data
Told: and that from `shards = SHARDS[rank::world]`
"""

from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

SHARDS = [[1.0] * 8, [2.0] * 4, [3.0] * 8, [4.0] * 4]


class Shards(Dataset):
    def __init__(self, shards):
        self.rows = [row for shard in shards for row in shard]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.full((3,), self.rows[index])


class Epoch(Subset):
    def batches(self):
        return DataLoader(self.dataset, batch_size=2)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shards = SHARDS[rank::world]  # cause # right: shards = SHARDS[:world]
    data = Shards(shards)
    epoch = Epoch(dataset=data, indices=range(4))
    model = DistributedDataParallel(nn.Linear(3, 1))
    deque(map(lambda batch: model(batch).sum().backward(), epoch.batches()), maxlen=0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
