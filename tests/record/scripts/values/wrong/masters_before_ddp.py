"""The optimizer steps copies in single precision, made before DDP sends rank 0's weights.

Found: replicas_differ
Says: the optimizer steps copies of the weights (line 31)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)


def copy(module):
    return [p.detach().float().clone() for p in module.parameters()]


net = nn.Linear(8, 4).bfloat16()
masters = copy(net)
net = DDP(net)  # replicas_differ
opt = torch.optim.AdamW(masters, lr=1e-2)
for step in range(3):
    x = torch.randn(8, 8).bfloat16()
    net.zero_grad()
    net(x).float().square().mean().backward()
    for master, p in zip(masters, net.parameters()):
        master.grad = p.grad.float()
    opt.step()
    with torch.no_grad():
        for master, p in zip(masters, net.parameters()):
            p.copy_(master)
dist.destroy_process_group()
