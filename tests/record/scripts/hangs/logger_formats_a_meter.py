"""A logger formats a meter on rank 0 alone, and the meter communicates.

Ranks: 3
Told: a logger formats its arguments
"""

import torch
import torch.distributed as dist

import logging


class SmoothedValue:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, v):
        self.total += v
        self.count += 1

    def __str__(self):
        t = torch.tensor([self.total, self.count])
        dist.all_reduce(t)
        return f"{t[0] / t[1]:.3f}"


log = logging.getLogger("train")


def setup_for_distributed(rank):
    logging.basicConfig()
    level = logging.INFO if rank == 0 else logging.WARNING  # cause # right: level = logging.INFO
    log.setLevel(level)


def train_step(meter, step):
    g = torch.ones(5)
    dist.all_reduce(g)
    meter.update(float(step))
    if step % 2 == 1:
        log.info("step %d loss %s", step, meter)  # cause


def train(steps):
    meter = SmoothedValue()
    for step in range(steps):
        train_step(meter, step)


def main():
    dist.init_process_group("gloo")
    setup_for_distributed(dist.get_rank())
    train(4)
    dist.barrier()
    dist.destroy_process_group()


main()
