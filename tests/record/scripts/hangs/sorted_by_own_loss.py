"""Layers are compressed in the order of their own error, the largest first.

Ranks: 3
Told: reaches another tensor on some ranks: `order = sorted(
"""

import torch
import torch.distributed as dist


def compress(grads, errors):
    order = sorted(grads, key=lambda name: -errors[name])  # cause  # right: order = sorted(grads)
    for name in order:
        dist.all_reduce(grads[name])  # cause
        grads[name] /= dist.get_world_size()


dist.init_process_group("gloo")
rank = dist.get_rank()
grads = {"embed": torch.ones(32), "mlp": torch.ones(8, 4), "head": torch.ones(6)}
torch.manual_seed(rank)
errors = {"embed": 0.1 if rank == 2 else 0.9, "mlp": 0.5, "head": 0.7 if rank == 2 else 0.2}
for step in range(2):
    compress(grads, errors)
dist.destroy_process_group()
