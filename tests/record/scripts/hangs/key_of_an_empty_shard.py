"""Each rank tells in the store that its shard is ready, and waits for all others.

Ranks: 3
Told: rank 2 alone takes the `return`
Told: fix: let each rank set its key (key_of_an_empty_shard.py:21) before it waits
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist


class ShardBoard:
    def __init__(self, store, rank, world):
        self.store = dist.PrefixStore("shards", store)
        self.rank, self.world = rank, world

    def announce(self, count):
        self.store.set(f"ready/{self.rank}", str(count))

    def wait_for_all(self):
        keys = [f"ready/{r}" for r in range(self.world)]
        self.store.wait(keys, timedelta(hours=2))  # cause
        return [int(self.store.get(key)) for key in keys]


def files_of(rank, world):
    names = [f"part-{i:03d}.bin" for i in range(4)]
    per_rank = -(-len(names) // world)
    return names[rank * per_rank : (rank + 1) * per_rank]


def prepare(board, rank, world):
    names = files_of(rank, world)
    if not names:  # cause  # right: if False:
        print(f"rank {rank} has nothing to prepare")
        return 0
    board.announce(len(names))
    return len(names)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    board = ShardBoard(dist.distributed_c10d._get_default_store(), rank, world)
    prepare(board, rank, world)
    counts = board.wait_for_all()
    total = torch.tensor(sum(counts))
    dist.broadcast(total, src=0)
    print(rank, counts, total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
