"""Each rank has a scaler of its own, before the gradients are reduced.

Found: replicas_differ
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
torch.manual_seed(rank)
for step in range(4):
    opt.zero_grad()
    x = torch.randn(4, 8)
    if rank == 1 and step == 1:
        x[0] = float("inf")
    scaler.scale(net(x).pow(2).mean()).backward()
    scaler.unscale_(opt)
    for p in net.parameters():
        p.grad.nan_to_num_(0.0, 0.0, 0.0)
        dist.all_reduce(p.grad)
        p.grad /= world
    scaler.step(opt)  # replicas_differ
    scaler.update()
dist.destroy_process_group()
