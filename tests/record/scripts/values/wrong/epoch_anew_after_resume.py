"""A training goes on from a checkpoint that has no place in the epoch.

Found: resumes_otherwise
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
kept = None
for most in (3, 99):
    net = DDP(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    if kept is not None:
        net.module.load_state_dict(kept[0])
        opt.load_state_dict(kept[1])
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True))
    for at, (x, y) in enumerate(loader):  # resumes_otherwise
        if at == most:
            break
        opt.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
    kept = copy.deepcopy((net.module.state_dict(), opt.state_dict()))
dist.destroy_process_group()
