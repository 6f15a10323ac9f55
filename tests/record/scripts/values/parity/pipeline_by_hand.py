"""A pipeline by hand, whose stages name their modules otherwise; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
MICRO = 4
torch.manual_seed(5)
stages = [
    nn.Sequential(nn.Linear(12, 20), nn.Tanh()),
    nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)),
]
mine = nn.Sequential(*stages) if world == 1 else stages[rank]
opt = torch.optim.SGD(mine.parameters(), lr=0.05)
data = torch.randn(4, 16, 12)
labels = torch.randint(0, 3, (4, 16))
for step in range(4):
    opt.zero_grad()
    if world == 1:
        F.cross_entropy(mine(data[step]), labels[step]).backward()
    else:
        kept = []
        for x, y in zip(data[step].chunk(MICRO), labels[step].chunk(MICRO)):
            if rank == 0:
                h = mine(x)
                kept.append(h)
                dist.send(h.detach(), 1)
            else:
                h = torch.empty(4, 20)
                dist.recv(h, 0)
                h.requires_grad_()
                loss = F.cross_entropy(mine(h), y)
                loss = loss if how == "micro" else loss / MICRO
                loss.backward()
                kept.append(h)
        for at, h in enumerate(kept):
            if rank == 1:
                dist.send(h.grad, 0)
            else:
                g = torch.empty_like(h)
                dist.recv(g, 1)
                kept[MICRO - 1 - at if how == "last" else at].backward(g)
    if how == "clip":
        nn.utils.clip_grad_norm_(mine.parameters(), 0.05)
    opt.step()
dist.destroy_process_group()
