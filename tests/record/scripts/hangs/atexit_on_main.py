"""The main rank's logger writes the last averages when the program ends.

Ranks: 2
Told: rank 0 alone goes into `if is_main()`
"""

import atexit

import torch
import torch.distributed as dist


class Mean:
    def __init__(self, name):
        self.name = name
        self.total = torch.zeros(2)

    def update(self, value, count=1):
        self.total += torch.tensor([float(value) * count, count])

    def compute(self):
        total = self.total.clone()
        dist.all_reduce(total)
        return float(total[0] / total[1].clamp(min=1))


def is_main():
    return dist.get_rank() == 0


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


class Logger:
    def __init__(self, *metrics):
        self.metrics, self.lines = metrics, []
        if is_main():  # cause  # right: if False:
            atexit.register(self.close)  # cause

    def log(self, step, value):
        self.lines.append((step, value))
        for metric in self.metrics:
            metric.update(value)

    def close(self):
        for metric in self.metrics:
            print(metric.name, metric.compute())  # cause


def train(logger, rank):
    for step in range(3):
        x = torch.ones(2) * rank
        dist.all_reduce(x)
        logger.log(step, x.sum())


def main():
    rank, _world = setup()
    logger = Logger(Mean("loss"))
    train(logger, rank)
    dist.barrier()


if __name__ == "__main__":
    main()
