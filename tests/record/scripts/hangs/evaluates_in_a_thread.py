"""The main rank evaluates in the background while training goes on.

Ranks: 2
Told: rank 0 alone goes into `if step == 1 and is_main()`
"""

from concurrent.futures import ThreadPoolExecutor

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


def evaluate(weight):
    accuracy = Mean("accuracy")
    for batch in torch.ones(3, 4):
        accuracy.update((batch @ weight > 0).float().mean())
    return accuracy.compute()  # cause


def train_step(weight, rank):
    gradient = torch.ones(4) * (rank + 1)
    dist.all_reduce(gradient)
    weight -= 0.1 * gradient


def main():
    rank, _world = setup()
    weight = torch.ones(4)
    pool = ThreadPoolExecutor(1)
    pending = None
    for step in range(4):
        train_step(weight, rank)
        if step == 1 and is_main():  # cause  # right: if False:
            pending = pool.submit(evaluate, weight.clone())  # cause
            pending.result()
    dist.barrier()
    print(rank, weight)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
