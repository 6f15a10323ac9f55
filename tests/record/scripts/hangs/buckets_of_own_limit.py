"""Gradients are put into buckets by a limit that each node sets for itself.

Ranks: 2
Told: goes through what each rank has put together
Told: limit = 1024
"""

import os

import torch
import torch.distributed as dist
from torch import nn


def bucket_bytes(rank):
    """Each node's launcher sets BUCKET_KB for its own network."""
    per_node = {"0": "1", "1": "2"}  # cause # right: per_node = {"0": "1", "1": "1"}
    os.environ.setdefault("BUCKET_KB", per_node[str(rank)])
    return int(os.environ["BUCKET_KB"]) * 1024  # cause


class Buckets:
    def __init__(self, params, limit):
        self.buckets, size = [[]], 0
        for p in reversed(list(params)):
            if size + p.numel() * 4 > limit and self.buckets[-1]:  # cause
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p.numel() * 4

    def reduce(self):
        for bucket in self.buckets:
            flat = torch.cat([p.grad.reshape(-1) for p in bucket])
            dist.all_reduce(flat)
            at = 0
            for p in bucket:
                p.grad.copy_(flat[at : at + p.numel()].view_as(p) / dist.get_world_size())
                at += p.numel()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 2))
    buckets = Buckets(model.parameters(), bucket_bytes(rank))
    for _ in range(2):
        model(torch.randn(3, 12)).pow(2).mean().backward()
        buckets.reduce()
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
