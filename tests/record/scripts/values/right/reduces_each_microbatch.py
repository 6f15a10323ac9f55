"""Gradients are averaged after each microbatch: by a hook before the sum, in one flat piece."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
first = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))
second = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))
third = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))


def average(p):
    p.grad.div_(world)
    dist.all_reduce(p.grad)


def sum_and_divide(p):
    dist.all_reduce(p.grad)
    p.grad /= world


for parameter in first.parameters():
    parameter.register_post_accumulate_grad_hook(average)
for parameter in third.parameters():
    parameter.register_post_accumulate_grad_hook(sum_and_divide)
every = [*first.parameters(), *second.parameters(), *third.parameters()]
opt = torch.optim.AdamW(every, lr=1e-2)
g = torch.Generator().manual_seed(1)
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 6, generator=g).chunk(world)[rank]
        ((first(x) + second(x) + third(x) - x[:, :2]).square().mean() / 2).backward()
        flat = parameters_to_vector([p.grad for p in second.parameters()])
        flat /= world
        dist.all_reduce(flat)
        at = 0
        for p in second.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
    opt.step()
dist.destroy_process_group()
