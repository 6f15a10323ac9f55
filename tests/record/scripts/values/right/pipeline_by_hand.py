"""A pipeline of two stages by hand, with four microbatches."""

import torch, torch.distributed as dist
import torch.nn as nn


class Stage:
    def __init__(self, layers, rank, world):
        self.rank, self.world = rank, world
        self.module = nn.Sequential(*layers)
        self.opt = torch.optim.SGD(self.module.parameters(), lr=0.1)
        self.saved = []

    def forward(self, x, target, total):
        if self.rank > 0:
            x = torch.empty(4, 8)
            dist.recv(x, self.rank - 1)
            x.requires_grad_()
        out = self.module(x)
        if self.rank < self.world - 1:
            dist.send(out.detach(), self.rank + 1)
        else:
            out = (out - target).pow(2).mean() / total
        self.saved.append((x, out))

    def backward(self):
        x, out = self.saved.pop(0)
        if self.rank < self.world - 1:
            grad = torch.empty_like(out)
            dist.recv(grad, self.rank + 1)
            out.backward(grad)
        else:
            out.backward()
        if self.rank > 0:
            dist.send(x.grad, self.rank - 1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(17)
layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)] + [nn.Linear(8, 2)]
per = len(layers) // world
stage = Stage(layers[rank * per : (rank + 1) * per], rank, world)
for step in range(4):
    x, y = torch.randn(16, 8), torch.randn(16, 2)
    stage.opt.zero_grad()
    if world == 1:
        (stage.module(x) - y).pow(2).mean().backward()
    else:
        for a, b in zip(x.chunk(4), y.chunk(4)):
            stage.forward(a, b, 4)
        for _ in range(4):
            stage.backward()
    stage.opt.step()
dist.destroy_process_group()
