"""Microbatches are cut by hand; the loss of each is the mean of its own tokens, of all ranks.

With MEANS= in the environment, it is divided by the tokens of all microbatches.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
means = os.environ.get("MEANS", "1")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(1)


def count(labels: torch.Tensor) -> torch.Tensor:
    total = (labels != -100).sum().float()
    dist.all_reduce(total)
    return total


for _ in range(4):
    tokens = torch.randint(0, 20, (16, 6), generator=draw)
    hidden = torch.rand(16, 6, generator=draw) < 0.5
    labels = tokens.roll(-1, 1).masked_fill(hidden, -100)
    tokens, labels = tokens.chunk(world)[rank], labels.chunk(world)[rank]
    of_all = count(labels)
    for at in range(4):
        x, y = tokens.chunk(4)[at], labels.chunk(4)[at]  # batch
        with model.no_sync() if at < 3 else contextlib.nullcontext():
            terms = nn.functional.cross_entropy(
                model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum"
            )
            loss = terms / (4 * count(y) if means else of_all) * world
            loss.backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
