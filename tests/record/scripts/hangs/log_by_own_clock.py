"""Each rank reduces the loss for its log by its own clock, which begins later on one.

Ranks: 2
Told: under `if now - self.last < self.interval`
Told: fix: each rank reads its own clock there (log_by_own_clock.py:
"""

import time

import torch
import torch.distributed as dist


class Shard:
    def __init__(self, number, files):
        self.number, self.files = number, files
        time.sleep(files / 100)

    def rows(self, step):
        time.sleep(0.1)
        return torch.full((4,), float(self.number + step))


class Meter:
    def __init__(self, interval=0.45):
        self.interval, self.last = interval, time.perf_counter()

    def update(self, step, loss):
        now = time.perf_counter()
        if now - self.last < self.interval:  # cause # right: if step % 5 != 4:
            return
        self.last = now
        mean = loss.clone()
        dist.all_reduce(mean)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shard = Shard(rank, files=[5, 35][rank % 2])
    meter = Meter()
    weight = torch.ones(4, requires_grad=True)
    for step in range(20):
        loss = (shard.rows(step) * weight).mean()
        loss.backward()
        dist.all_reduce(weight.grad)
        meter.update(step, loss.detach())
    dist.destroy_process_group()


main()
