"""Each rank computes the whole loss of gathered features, its own part with its graph."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def gather(own):
    parts = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(parts, own)
    parts[rank] = own
    return torch.cat(parts)


net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    f = net(torch.randn(4, 8))
    every = gather(f)
    scores = every @ every.T
    loss = nn.functional.cross_entropy(scores, torch.arange(4 * world).roll(1))
    opt.zero_grad()
    (loss * world + 0.01 * f.pow(2).mean()).backward()
    opt.step()
dist.destroy_process_group()
