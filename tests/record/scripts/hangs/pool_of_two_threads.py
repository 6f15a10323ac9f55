"""Two threads of a pool reduce in one group, and come there in another order on each rank.

Ranks: 2
Told: two threads of rank
Told: give each thread a group of its own, or let one thread make all calls
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


class AsyncReducer:
    """Reduces gradients while the next layer's backward runs."""

    def __init__(self, threads):
        self.pool = ThreadPoolExecutor(threads)
        self.futures = []

    def push(self, grad, delay):
        def job():
            time.sleep(delay)  # copy to pinned memory
            dist.all_reduce(grad)  # cause
            return grad

        self.futures.append(self.pool.submit(job))

    def drain(self):
        out = [f.result() for f in self.futures]
        self.futures = []
        return out


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shapes = [(64, 64), (64,)]
    reducer = AsyncReducer(threads=2)  # cause # right: reducer = AsyncReducer(threads=1)
    for step in range(2):
        for i, shape in enumerate(shapes):
            slow = (i == 0) == (rank == 0)
            reducer.push(torch.ones(shape), delay=0.5 if slow else 0.05)
        grads = reducer.drain()
    print(rank, [g.sum().item() for g in grads])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
