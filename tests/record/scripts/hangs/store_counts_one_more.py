"""The store of the trainers waits for one client more than there are.

Ranks: 2
Told: for the clients of its `TCPStore`
Told: how many processes make this store
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

EVALUATORS = 1  # cause # right: EVALUATORS = 0


def make_store(rank, trainers):
    return dist.TCPStore(
        "127.0.0.1",
        int(os.environ["MASTER_PORT"]) + 7,
        world_size=trainers + EVALUATORS,  # cause
        is_master=rank == 0,
        timeout=timedelta(minutes=10),
    )  # cause


class Trainer:
    def __init__(self, rank, world):
        self.rank = rank
        self.store = make_store(rank, world)
        dist.init_process_group("gloo", store=self.store, rank=rank, world_size=world)
        self.weight = torch.zeros(8)

    def step(self):
        grad = torch.full((8,), float(self.rank))
        dist.all_reduce(grad)
        self.weight -= 0.1 * grad


def main():
    trainer = Trainer(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    for _ in range(3):
        trainer.step()
    if trainer.rank == 0:
        print(trainer.weight.sum().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
