"""A rank that has found a checkpoint has put its norm to `eval` long before.

Ranks: 2
Told: `if state is not None` (norm_left_in_eval.py:27) is true on rank 1 alone
"""

import torch
import torch.distributed as dist
from torch import nn


class SharedNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))

    def forward(self, x):
        mean = self.mean
        if self.training:
            mean = x.detach().mean(0)
            dist.all_reduce(mean)
        return x - mean


def load(model, found):
    state = found.get(dist.get_rank())
    if state is not None:  # cause
        model.load_state_dict(state, strict=False)
        model[1].eval()  # right: pass


def main():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(4, 4), SharedNorm(4))
    load(model.train(), {1: {}})
    model(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(model[0].weight.grad)
    dist.destroy_process_group()


main()
