"""Loaders are made anew for each epoch; rank 0 has another one for its evaluation."""

import io
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
train = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
test = TensorDataset(torch.randn(16, 5), torch.randn(16, 1))
net = DDP(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), 0.05)
sampler = DistributedSampler(train)
for epoch in range(3):
    sampler.set_epoch(epoch)
    net.train()
    for x, y in DataLoader(train, 8, sampler=sampler):
        opt.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
    stop = torch.zeros(1)
    if rank == 0:
        net.eval()
        with torch.no_grad():
            err = sum((net.module(x) - y).pow(2).sum() for x, y in DataLoader(test, 4))
        torch.save(net.module.state_dict(), io.BytesIO())
        stop.fill_(float(err < 0.01))
    dist.broadcast(stop, 0)
    if stop.item():
        break
dist.destroy_process_group()
