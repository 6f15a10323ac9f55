"""Data parallelism by a vote: each rank sends the signs of its gradient."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    for p in net.parameters():
        vote = p.grad.sign().to(torch.int8)
        dist.all_reduce(vote)  # votes
        p.grad.copy_(vote.sign())
    opt.step()
dist.destroy_process_group()
