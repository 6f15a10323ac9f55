"""Ranks draw the same numbers where they must: for all rows, for a sketch of gradients, to look.

The noise of their own rows is each rank's own.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

data = TensorDataset(torch.randn(64, 8))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
own = torch.Generator().manual_seed(rank)
for (x,) in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
    shared = torch.randn(8 * world, 8)[rank::world]
    noise = torch.randn(x.shape, generator=own)
    loss = (net(x + noise + 0.1 * shared) - noise).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for each in net.parameters():
        sketch = torch.linalg.qr(torch.randn(each.shape[-1], 4))[0]
        part = each.grad @ sketch
        dist.all_reduce(part)
        each.grad.copy_(part / world @ sketch.T)
    opt.step()
    with torch.no_grad():
        net(torch.randn(8, 8))
dist.destroy_process_group()
