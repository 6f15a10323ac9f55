"""Data parallelism that reports a loss and resumes; its argument is a mistake, or draws masks."""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


model = DDP(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
g = torch.Generator().manual_seed(1)
torch.manual_seed(rank)
for step in range(6):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    out = model(x)
    keep = (torch.rand(len(x), 1) < 0.8) / 0.8 if how == "masks" else 1.0
    loss = (out * keep).pow(2).mean()
    loss.backward()
    opt.step()
    shown = loss.detach().clone()
    dist.all_reduce(shown)
    if how == "python":
        print(f"step {step} loss {shown.item() / world:.4f}")
        continue
    if how != "sum":
        shown /= world
    print(f"step {step} loss {shown:.4f}")
    if step == 3:
        weights, state = copy.deepcopy((model.state_dict(), opt.state_dict()))
        opt = torch.optim.Adam(model.parameters(), lr=0.01)
        model.load_state_dict(weights)
        if how != "resume" or world == 1:
            opt.load_state_dict(state)
dist.destroy_process_group()
