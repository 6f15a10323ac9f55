"""A rank waits for a key that is numbered by its micro batches, and rank 0 sets it by its updates.

Ranks: 2
Told: which no rank sets; set are `weights/1` by rank 0
Told: it is asked for by `self.batches` (key_of_another_count.py:
Told: and set by `self.updates` (key_of_another_count.py:
Told: fix: number the key alike
"""

import torch
import torch.distributed as dist


class Board:
    def __init__(self):
        self.store = dist.distributed_c10d._get_default_store()

    def name(self, number):
        return f"weights/{number}"

    def put(self, number):
        self.store.set(self.name(number), b"saved")

    def take(self, number):
        return self.store.get(self.name(number)).decode()


class Loop:
    def __init__(self, rank):
        self.rank, self.board = rank, Board()
        self.batches = self.updates = 0

    def step(self):
        self.batches += 1
        if self.batches % 2 == 0:
            dist.all_reduce(torch.ones(3))
            self.updates += 1

    def save(self):
        if self.rank == 0:
            self.board.put(self.updates)
        else:
            self.board.take(self.batches)  # cause  # right: self.board.take(self.updates)


dist.init_process_group("gloo")
loop = Loop(dist.get_rank())
for _ in range(2):
    loop.step()
loop.save()
dist.barrier()
dist.destroy_process_group()
