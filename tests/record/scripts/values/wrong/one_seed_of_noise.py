"""A model that removes noise: all data-parallel ranks add one and the same noise to other rows.

Found: same_mask
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)

data = TensorDataset(torch.randn(64, 8))
net = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)))
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
for (x,) in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
    noise = torch.randn_like(x)  # same_mask
    loss = (net(x + noise) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
