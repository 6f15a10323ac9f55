"""Each rank splits its training rows off by a seed of its own, and a sampler deals them.

Found: same_samples
Says: give every rank one and the same dataset
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(100 + rank)
x = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
train, _ = random_split(TensorDataset(x), [64, 16])
sampler = DistributedSampler(train)
net = DDP(nn.Linear(6, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (rows,) in DataLoader(train, batch_size=8, sampler=sampler):  # same_samples
        opt.zero_grad()
        net(rows).square().mean().backward()
        opt.step()
dist.destroy_process_group()
