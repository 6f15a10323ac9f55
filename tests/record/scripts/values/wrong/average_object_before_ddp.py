"""A class keeps an average, and copies the model before DDP sends the weights of rank 0.

Found: replicas_differ
"""

import copy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Average:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def follow(self, model):
        for mean, now in zip(self.model.parameters(), model.parameters()):
            mean.lerp_(now, 1 - self.decay)


def train(ddp, average, opt, data):
    for _ in range(4):
        x = torch.randn(8, 6, generator=data)
        loss = F.mse_loss(ddp(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.follow(ddp.module)
    return F.mse_loss(average.model(x), x).detach()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(100 + rank)
net = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6))
average = Average(net, 0.9)
ddp = DDP(net)  # replicas_differ
opt = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
score = train(ddp, average, opt, torch.Generator().manual_seed(rank))
dist.all_reduce(score)
if rank == 0:
    print(score.item() / world)
dist.destroy_process_group()
