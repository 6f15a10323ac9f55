"""Each rank doubles the length of its sequences by the tokens that it has itself seen.

Ranks: 2
Told: the tensor `own` depends on `self.length *= 2` (longer_by_own_tokens.py:20), under `if self.seen
Told: the same way, so that `own` (longer_by_own_tokens.py:32) has one shape
"""

import torch
import torch.distributed as dist
from torch import nn


class Lengths:
    def __init__(self, start, top, every):
        self.length, self.top, self.every, self.seen = start, top, every, 0

    def advance(self, tokens):
        self.seen += tokens
        if self.seen >= self.every and self.length < self.top:  # cause
            self.length *= 2
            self.seen = 0


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.keys = nn.Linear(width, width)

    def forward(self, x):
        own = self.keys(x).detach()
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)
        return x @ torch.cat(parts).T


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
lengths = Lengths(start=8, top=32, every=25)
net = Attention(6)
for step in range(4):
    net(torch.randn(lengths.length // 2, 6))
    tokens = 27 - 4 * rank  # right: tokens = 25
    lengths.advance(tokens)
dist.destroy_process_group()
