"""Experts of one seed, each rank its own; the gate is shared."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

from torch.distributed.nn.functional import all_to_all_single

gate, expert = nn.Linear(8, 8), nn.Linear(8, 8)
opt = torch.optim.SGD([*gate.parameters(), *expert.parameters()], lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    h = gate(torch.randn(2 * world, 8))
    got = all_to_all_single(torch.empty_like(h), h)
    back = all_to_all_single(torch.empty_like(h), expert(got))
    back.pow(2).mean().backward()
    for p in gate.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
dist.destroy_process_group()
