"""Data parallelism by hand: gradients averaged one by one."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1234)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)


def average_gradients(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= size


for epoch in range(2):
    total = 0.0
    for b in range(3):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.randn(4, 1, 8, 8)), torch.randint(0, 10, (4,)))
        total += loss.item()
        loss.backward()
        average_gradients(net)
        opt.step()
    print("Rank", rank, epoch, total)
dist.destroy_process_group()
