"""Weights in a dictionary, stepped without an optimizer; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
from torch.func import functional_call, grad

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
params = {k: p.detach().clone() for k, p in net.named_parameters()}
data = torch.randn(48, 16)
target = torch.randint(0, 4, (48,))


def loss_of(params, x, y):
    return F.cross_entropy(functional_call(net, params, (x,)), y)


for step in range(4):
    rows = slice(step * 12, step * 12 + 12)
    x, y = data[rows].chunk(world)[rank], target[rows].chunk(world)[rank]
    grads = grad(loss_of)(params, x, y)
    for name, g in grads.items():
        if how == "bias" and name.endswith("bias"):
            continue
        dist.all_reduce(g)
        g /= world
    params = {k: p - 0.1 * grads[k] for k, p in params.items()}
dist.destroy_process_group()
