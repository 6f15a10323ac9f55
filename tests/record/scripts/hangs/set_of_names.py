"""Gradients are reduced in the order of a set of names.

Ranks: 2
Told: goes through a set, whose order each process has for itself
Told: go through `sorted(...)`
"""

import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
model = nn.ModuleDict(
    {
        n: nn.Linear(4, i + 2)
        for i, n in enumerate(
            ["encoder", "decoder", "head", "embed", "norm", "proj", "gate", "mlp"]
        )
    }
)
loss = sum(m(torch.ones(1, 4)).sum() for m in model.values())
loss.backward()
params = dict(model.named_parameters())
todo = set(params)
for name in todo:  # cause  # right: for name in sorted(todo):
    dist.all_reduce(params[name].grad)  # cause
dist.destroy_process_group()
