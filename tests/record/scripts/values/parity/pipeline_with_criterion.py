"""Two stages by hand, whose loss is a module that is called with labels; `micro` is a mistake."""

import sys, torch
import torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)]
stage = nn.Sequential(*(layers if world == 1 else layers[2 * rank : 2 + 3 * rank]))
criterion = nn.CrossEntropyLoss()
opt = torch.optim.SGD(stage.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for _ in range(3):
    x, y = torch.randn(16, 8, generator=g), torch.randint(0, 4, (16,), generator=g)
    opt.zero_grad()
    if world == 1:
        criterion(stage(x), y).backward()
    for rows, labels in zip(x.split(4), y.split(4)) if world > 1 else ():
        if rank == 0:
            out = stage(rows)
            dist.send(out.detach(), 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)
        else:
            sent = torch.empty(4, 8)
            dist.recv(sent, 0)
            loss = criterion(stage(sent.requires_grad_()), labels)
            (loss if how == "micro" else loss / 4).backward()
            dist.send(sent.grad, 0)
    opt.step()
dist.destroy_process_group()
