"""Hooks of DDP: compressed gradients, PowerSGD."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(nn.Linear(64, 64))
net.register_comm_hook(None, default_hooks.fp16_compress_hook)
for i in range(3):
    net(torch.randn(2, 64)).sum().backward()
net = DDP(nn.Linear(64, 64))
net.register_comm_hook(
    powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
)
for i in range(5):
    net(torch.randn(2, 64)).sum().backward()
dist.destroy_process_group()
