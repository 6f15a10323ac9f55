"""One rank sums rows of float64 that numpy made, and the other rows of float32.

Ranks: 2
Told: `block = torch.from_numpy(rows)` (rows_in_double.py:
Told: fix: convert the array to one dtype at rows_in_double.py:
"""

import numpy as np
import torch
import torch.distributed as dist


class Stats:
    def __init__(self, features):
        self.features = features
        self.count = 0
        self.total = None

    def update(self, rows):
        block = torch.from_numpy(rows)  # cause
        self.total = block.sum(0) if self.total is None else self.total + block.sum(0)
        self.count += len(rows)

    def finish(self):
        if self.total is None:
            self.total = torch.zeros(self.features)
        dist.all_reduce(self.total)
        return self.total / max(self.count, 1)


def read(rank):
    rng = np.random.default_rng(rank)
    if rank == 0:
        cached = rng.normal(size=(10, 5))  # right: cached = np.ones((10, 5), np.float32)
        yield cached
    else:
        for _ in range(2):
            yield rng.normal(size=(5, 5)).astype(np.float32)


def main():
    dist.init_process_group("gloo")
    stats = Stats(5)
    for rows in read(dist.get_rank()):
        stats.update(rows)
    print(stats.finish())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
