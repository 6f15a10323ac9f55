"""Rank 0's trainer has a method of its own, which leaves out the barrier of the base class.

Ranks: 2
Told: rank 1 is in `Trainer.on_epoch_end`
Told: `MainTrainer` has its own `on_epoch_end`
Told: `if rank == 0` (override_without_super.py:42) is true on rank 0 alone
"""

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, model):
        self.model, self.log, self.loss = model, [], 0.0

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train(epoch)
            self.on_epoch_end(epoch)

    def train(self, epoch):
        loss = self.model(torch.randn(4, 3)).mean()
        loss.backward()
        for weight in self.model.parameters():
            dist.all_reduce(weight.grad)
        self.loss = loss.item()

    def on_epoch_end(self, epoch):
        dist.barrier()


class MainTrainer(Trainer):
    def on_epoch_end(self, epoch):  # cause
        self.keep(epoch)  # right: self.keep(epoch), super().on_epoch_end(epoch)

    def keep(self, epoch):
        self.log.append((epoch, self.loss))


def build(rank):
    kind = MainTrainer if rank == 0 else Trainer
    return kind(torch.nn.Linear(3, 1))


dist.init_process_group("gloo")
build(dist.get_rank()).fit(3)
dist.destroy_process_group()
