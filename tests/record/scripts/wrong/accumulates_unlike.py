"""Ranks accumulate gradients over different numbers of batches.

Finds: call_mismatch
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(nn.Linear(4, 2))
every = 3 if dist.get_rank() == 0 else 2
for batch in range(1, 7):
    with net.no_sync() if batch % every else contextlib.nullcontext():
        net(torch.randn(2, 4)).sum().backward()  # here
dist.barrier()  # here
dist.destroy_process_group()
