"""Rank 1 gathers the shards of its layers in another order.

Found: units_crossed
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

shards = {"up": torch.nn.Parameter(torch.randn(4)), "down": torch.nn.Parameter(torch.randn(4))}
opt = torch.optim.SGD(shards.values(), lr=0.1)
torch.manual_seed(rank)
for step in range(2):
    whole = {}
    for name in sorted(shards, reverse=rank == 1):
        whole[name] = torch.empty(4 * world)
        dist.all_gather_into_tensor(whole[name], shards[name].data)  # units_crossed
    opt.zero_grad()
    sum((p * p).sum() for p in shards.values()).backward()
    opt.step()
dist.destroy_process_group()
