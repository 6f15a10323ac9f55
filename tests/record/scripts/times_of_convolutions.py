"""A convolution that is trained by DDP: no step with one was compared with a measurement."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 64, 7), nn.ReLU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(64, 3, 224, 224)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
