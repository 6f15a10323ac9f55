"""A training that writes checkpoints and goes on from them; `MISTAKE` says what it forgets."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mistake = os.environ.get("MISTAKE", "")
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
path = Path("checkpoint.pt")
first = 0
if path.exists():
    state = torch.load(path)
    net.module.load_state_dict(state["model"])  # resumes_otherwise
    if mistake != "momentum":
        opt.load_state_dict(state["opt"])
    if mistake != "schedule":
        schedule.load_state_dict(state["schedule"])
    else:
        opt.param_groups[0]["lr"] = 0.05
    if mistake == "momentum":
        opt.param_groups[0]["lr"] = schedule.get_last_lr()[0]
    first = state["step"] + 1
g = torch.Generator().manual_seed(9)
X, Y = torch.randn(96, 6, generator=g), torch.randn(96, 1, generator=g)
for step in range(first, 6):
    batch = step - first if mistake == "rows" else step
    rows = slice(16 * batch, 16 * batch + 16)
    x, y = X[rows][rank::world], Y[rows][rank::world]
    opt.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    opt.step()
    schedule.step()
    if rank == 0 and step == 2:
        parts = {"model": net.module, "opt": opt, "schedule": schedule}
        state = {name: each.state_dict() for name, each in parts.items()}
        torch.save({**state, "step": step}, path)
    dist.barrier()
dist.destroy_process_group()
