"""Ranks train until a budget of time is used up, each by its own clock.

Ranks: 2
Told: while time.monotonic() - begin < budget_s
Told: each rank reads its own clock there
"""

import time

import torch
import torch.distributed as dist
from torch import nn


def train(model, budget_s, delay_s):
    begin = time.monotonic()
    steps = 0
    while time.monotonic() - begin < budget_s:  # cause # right: while steps < 3:
        time.sleep(delay_s)
        model(torch.randn(2, 4)).sum().backward()
        model.zero_grad()
        steps += 1
    return steps


dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
if dist.get_rank() == 1:
    time.sleep(0.4)
train(model, 1.0, 0.1)
counts = [torch.zeros(1) for _ in range(2)]
dist.all_gather(counts, torch.ones(1))
dist.destroy_process_group()
