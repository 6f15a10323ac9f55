"""Keys are looked through for those that are too alike, while they are still on their way.

Found: touched_in_flight
Says: the script computes with the result of this call in line 26
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    x = torch.randn(4, 8)
    keys = F.normalize(net.module(x + 0.1).detach(), dim=1)
    bank = torch.zeros(4 * world, 4)
    work = dist.all_gather_into_tensor(bank, keys, async_op=True)  # touched_in_flight
    queries = F.normalize(net(x), dim=1)
    rows = torch.arange(4) + 4 * rank
    alike = keys @ bank.T > 0.9
    work.wait()
    alike[torch.arange(4), rows] = False
    loss = F.cross_entropy((queries @ bank.T).masked_fill(alike, -1e4), rows)
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
