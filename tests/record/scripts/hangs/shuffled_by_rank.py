"""Metrics are reduced in an order that each rank shuffles for itself.

Ranks: 2
Told: `for name in names` (shuffled_by_rank.py
"""

import random

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
metrics = {"loss": torch.ones(1), "accuracy": torch.ones(5), "histogram": torch.ones(16)}
names = list(metrics)
random.Random(dist.get_rank()).shuffle(names)  # cause # right: names.sort()
for name in names:
    dist.all_reduce(metrics[name])
dist.destroy_process_group()
