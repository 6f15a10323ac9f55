"""A data parallelism by hand: one flat buffer has all gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()]) / world
    dist.all_reduce(flat)
    for p in net.parameters():
        p.grad.copy_(flat[: p.numel()].view_as(p))
        flat = flat[p.numel() :]
    opt.step()
dist.destroy_process_group()
