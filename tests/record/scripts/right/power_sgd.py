"""DDP with PowerSGD."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

dist.init_process_group("gloo")
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)))
state = power.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2)
net.register_comm_hook(state, power.powerSGD_hook)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    net(torch.randn(4, 32)).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
