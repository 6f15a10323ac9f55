"""A `partial` gives a loss `gather=True` on the first rank alone.

Ranks: 2
Told: `gather` comes from `return partial(loss, gather=rank == 0)`
"""

from functools import partial

import torch
import torch.distributed as dist


def loss(one, two, gather=False):
    if gather:
        parts = [torch.zeros_like(two) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, two.detach())
        two = torch.cat(parts)
    return (one @ two.t()).mean()


def make_loss(rank):
    return partial(loss, gather=rank == 0)  # cause # right: return partial(loss, gather=True)


def main():
    dist.init_process_group("gloo")
    layer, score = torch.nn.Linear(4, 4), make_loss(dist.get_rank())
    score(layer(torch.ones(2, 4)), layer(torch.ones(2, 4))).backward()
    dist.all_reduce(layer.weight.grad)
    dist.destroy_process_group()


main()
