"""FSDP2 on its own rows, with its clipping. The root keeps what it has gathered while rows are counted."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (world,))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
fully_shard(net[0], mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    loss, rows = net(torch.randn(4 + rank, 8)).pow(2).sum(), torch.tensor(4.0 + rank)
    dist.all_reduce(rows)
    (loss * world / rows).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    opt.step()
dist.destroy_process_group()
