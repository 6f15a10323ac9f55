"""The task with the largest loss goes first through a backward pass that communicates.

Ranks: 2
Told: goes in another order on some ranks
"""

import torch
import torch.distributed as dist


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


def run_backward(losses):
    order = sorted(losses, key=losses.get)  # right: order = sorted(losses)
    for name in order:  # cause
        losses[name].backward()


dist.init_process_group("gloo")
rank = dist.get_rank()
weights = {"depth": torch.ones(3, requires_grad=True), "mask": torch.ones(5, requires_grad=True)}
losses = {name: Shared.apply(weight).sum() for name, weight in weights.items()}
losses["mask"] = losses["mask"] * rank
run_backward(losses)
dist.destroy_process_group()
