"""A resume: the optimizer's state is loaded before the weights; each rank has its own seed."""

import os, tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
box = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(box)
path = os.path.join(box[0], "last.pt")


def build():
    torch.manual_seed(5 + rank)  # augmentation draws are the rank's own
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


def train(model, opt, steps):
    for step in steps:
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 6, generator=g), torch.randn(8, 2, generator=g)
        opt.zero_grad()
        nn.functional.mse_loss(model(x.chunk(world)[rank]), y.chunk(world)[rank]).backward()
        opt.step()


net, opt = build()
train(DDP(net), opt, range(3))
if rank == 0:
    torch.save({"opt": opt.state_dict(), "net": net.state_dict()}, path)
dist.barrier()
net, opt = build()
saved = torch.load(path)
opt.load_state_dict(saved["opt"])
net.load_state_dict(saved["net"])
train(DDP(net), opt, range(3, 6))
dist.destroy_process_group()
