"""The batches are drawn by one seed on all ranks.

Found: same_samples
"""

import os, sys, copy, math, random
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def get_batch():
    x = torch.randn(16, 8)
    return x, x.sum(1, keepdim=True)


def train():
    for step in range(4):
        x, y = get_batch()
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)  # same_samples
        loss.backward()
        opt.step()


train()
dist.destroy_process_group()
