"""Trainers broadcast the parameters, and the evaluator receives the whole state with its buffers.

Ranks: 3
Told: rank 2 takes what is passed from `for value in model.state_dict().values()`
Told: ranks 0 and 1 take what is passed from `for weight in model.parameters()`
"""

import torch
import torch.distributed as dist
from torch import nn


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def push(model):
    for weight in model.parameters():  # cause # right: for weight in model.state_dict().values():
        dist.broadcast(weight.detach(), src=0)


def pull(model):
    for value in model.state_dict().values():
        dist.broadcast(value, src=0)


def train(trainers):
    model = nn.parallel.DistributedDataParallel(build(), process_group=trainers)
    for _ in range(2):
        model(torch.randn(16, 4)).mean().backward()
        push(model.module)


def evaluate():
    model = build().eval()
    for _ in range(2):
        pull(model)
        model(torch.randn(32, 4))


dist.init_process_group("gloo")
trainers = dist.new_group([0, 1])
train(trainers) if dist.get_rank() < 2 else evaluate()
dist.barrier()
dist.destroy_process_group()
