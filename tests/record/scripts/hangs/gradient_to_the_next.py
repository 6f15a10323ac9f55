"""A stage sends its gradient on to the next stage, and not back to the one before.

Ranks: 3
Told: rank 2 sends to rank 0 (gradient_to_the_next.py:
Told: which receives nothing from it
Told: to rank 1.
"""

import torch
import torch.distributed as dist
from torch import nn


class Stage:
    def __init__(self, rank, world, dim, micro, count):
        self.rank, self.world = rank, world
        self.first, self.last = rank == 0, rank == world - 1
        self.shape = (micro, dim)
        self.count = count
        torch.manual_seed(rank)
        self.module = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())
        self.opt = torch.optim.SGD(self.module.parameters(), lr=0.01)

    def recv(self, peer):
        buffer = torch.empty(self.shape)
        dist.recv(buffer, src=peer)
        return buffer

    def forward(self, x):
        if not self.first:
            x = self.recv(self.rank - 1)
        x.requires_grad_()
        y = self.module(x)
        if not self.last:
            dist.send(y.detach(), dst=self.rank + 1)
        return x, y

    def backward(self, x, y):
        if self.last:
            y.pow(2).mean().backward()
        else:
            y.backward(self.recv(self.rank + 1))
        if not self.first:
            after, before = (self.rank + 1) % self.world, self.rank - 1
            dist.send(x.grad, after)  # cause # right: dist.send(x.grad, before)

    def step(self):
        kept = [self.forward(torch.randn(self.shape)) for _ in range(self.count)]
        for x, y in kept:
            self.backward(x, y)
        self.opt.step()
        self.opt.zero_grad()


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size(), dim=4, micro=2, count=3)
    for _ in range(2):
        stage.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
