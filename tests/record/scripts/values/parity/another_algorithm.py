"""A data-parallel step whose ranks exchange less than gradients, or train by themselves.

`signs` votes, `chosen` sends the largest elements, `perturbs` steps from weights that each rank
moves, `averages` averages weights every other step, `half` sends gradients in half precision. Wrong:
`counts` sums gradients without a division, next to counts of labels; `perturbs,sums` after a perturbation.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mode = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4))
own = [*net.parameters()]
opt = torch.optim.SGD(own, lr=0.05)
data, target = torch.randn(4, 16, 8), torch.randn(4, 16, 4)


def backward(x: torch.Tensor, y: torch.Tensor) -> None:
    opt.zero_grad()
    (net(x) - y).pow(2).mean().backward()


def reduce(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)
    tensor.div_(world)


def choose(gradient: torch.Tensor) -> torch.Tensor:
    flat = gradient.flatten()
    at = flat.abs().topk(flat.numel() // 4).indices
    places, values = ([torch.empty_like(each) for _ in range(world)] for each in (at, flat[at]))
    dist.all_gather(places, at)
    dist.all_gather(values, flat[at])
    whole = torch.zeros_like(flat)
    for place, value in zip(places, values, strict=True):
        whole.index_add_(0, place, value)
    return (whole / world).view_as(gradient)


for step in range(4):
    x, y = data[step].chunk(world)[rank], target[step].chunk(world)[rank]
    backward(x, y)
    if mode in {"perturbs", "perturbs,sums"}:
        moved = [p.grad / p.grad.norm() for p in own]
        kept = [p.detach().clone() for p in own]
        with torch.no_grad():
            for p, e in zip(own, moved, strict=True):
                p.add_(e, alpha=0.1 if mode == "perturbs" else 0.001)
        backward(x, y)
        with torch.no_grad():
            for p, before in zip(own, kept, strict=True):
                p.copy_(before)
    if mode == "counts":
        seen = torch.bincount(y.argmax(1), minlength=16)
        dist.all_reduce(seen)
    for p in own:
        if mode == "signs":
            vote = p.grad.sign().to(torch.int8)
            dist.all_reduce(vote)
            p.grad.copy_(vote.sign())
        elif mode == "chosen":
            p.grad.copy_(choose(p.grad))
        elif mode == "half":
            half = p.grad.half()
            reduce(half)
            p.grad.copy_(half)
        elif mode in {"counts", "perturbs,sums"}:
            dist.all_reduce(p.grad)
        elif mode != "averages":
            reduce(p.grad)
    opt.step()
    if mode == "averages" and step % 2:
        for p in own:
            reduce(p.data)
dist.destroy_process_group()
