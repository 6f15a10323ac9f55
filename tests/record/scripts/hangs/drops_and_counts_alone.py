"""Weights are averaged after so many steps of a rank's own, and one drops a batch.

Ranks: 2
Told: shape_mismatch: the ranks are out of step
"""

import torch
import torch.distributed as dist
from torch import nn

PERIOD = 4


class LocalTrainer:
    def __init__(self, rank):
        self.rank = rank
        self.local_steps = 0
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05)

    def is_usable(self, batch):
        return bool(batch.abs().max() < 3.0)

    def average(self):
        for p in self.model.parameters():
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()

    def step(self, batch):
        if not self.is_usable(batch):  # cause # right: if False:
            return  # cause
        self.optimizer.zero_grad()
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.local_steps += 1
        if self.local_steps % PERIOD == 0:  # cause
            self.average()


def batches(rank, count):
    for at in range(count):
        batch = torch.full((2, 4), 0.5)
        if rank == 1 and at == 5:
            batch[0, 0] = 7.0
        yield batch


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = LocalTrainer(dist.get_rank())
    for epoch in range(2):
        for batch in batches(trainer.rank, 8):
            trainer.step(batch)
        loss = torch.tensor(float(trainer.local_steps))
        dist.all_reduce(loss, op=dist.ReduceOp.MAX)
        if trainer.rank == 0:
            print(epoch, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
