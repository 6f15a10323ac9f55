"""A hook that all-reduces is registered on the rank that is debugged alone.

Ranks: 2
Told: rank 0 alone registers `hook` by `module.register_forward_hook(hook)`
Told: fix: register `hook` on every rank
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def watch(model):
    def hook(module, inputs, output):
        mean = output.detach().abs().mean()
        dist.all_reduce(mean)
        module.activation = mean / dist.get_world_size()

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(hook)


dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 2))
debugged = os.environ.get("DEBUG_RANK", "0")
if debugged == os.environ["RANK"]:  # cause # right: if debugged == "0":
    watch(model)
model = DistributedDataParallel(model)
for _ in range(3):
    model(torch.randn(8, 6)).sum().backward()
dist.barrier()
dist.destroy_process_group()
