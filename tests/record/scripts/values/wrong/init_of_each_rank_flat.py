"""Each rank seeds its weights by its number; one buffer has all gradients.

Found: replicas_differ
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

torch.manual_seed(100 + rank)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))  # replicas_differ
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(0)
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def sync(model):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


for step in range(4):
    x = torch.randn(16, 8).chunk(world)[rank]
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    sync(net)
    opt.step()
dist.destroy_process_group()
