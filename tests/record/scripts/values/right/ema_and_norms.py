"""BatchNorm under DDP, an average of the weights, a schedule, and a test that rank 0 prints."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))

import copy

sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net = DDP(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
ema = copy.deepcopy(net.module)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        opt.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
        schedule.step()
        with torch.no_grad():
            for mine, theirs in zip(ema.parameters(), net.module.parameters()):
                mine.mul_(0.9).add_(theirs, alpha=0.1)
    ema.eval()
    with torch.no_grad():
        wrong = torch.tensor([0.0, 0.0])
        for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
            wrong += torch.tensor([(ema(x) - y).pow(2).sum(), len(x)])
        dist.all_reduce(wrong)
dist.destroy_process_group()
