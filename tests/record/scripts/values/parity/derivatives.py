"""A loss of derivatives, which `torch.autograd.grad` computes by the inputs of a model.

Mistake `own`: gradients are computed by `torch.autograd.grad`, too, which no hook of DDP sees.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
field = DDP(
    nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
)
weights = [*field.parameters()]
opt = torch.optim.Adam(weights, lr=2e-3)
points = torch.Generator().manual_seed(1)
for _ in range(4):
    all_points = 3 * torch.randn(16, 2, generator=points)
    x = all_points.chunk(world)[rank].clone().requires_grad_()
    u = field(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    loss = (slope[:, 1:] + u * slope[:, :1]).square().mean() + (
        u - x.detach().sin().sum(1, keepdim=True)
    ).square().mean()
    opt.zero_grad()
    if MISTAKE == "own":
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
    else:
        loss.backward()
    opt.step()
dist.destroy_process_group()
