"""Data parallelism in bfloat16 by autocast: rows of half a batch are rounded otherwise."""

import sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 8)))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 32, generator=g).chunk(world)[rank]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    if how == "scaled":
        loss = loss / world
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
