"""Gradients are summed in a copy of a lower precision, and the sum is put back."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


@torch.no_grad()
def average():
    for p in net.parameters():
        sent = p.grad.bfloat16()
        dist.all_reduce(sent)
        p.grad.copy_(sent)
        p.grad.div_(world)


for x, y in DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False)):
    opt.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    average()
    opt.step()
dist.destroy_process_group()
