"""Shards of weights go on from a checkpoint, all with the optimizer's state of rank 0.

Found: resumes_otherwise
"""

import os, tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
box = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(box)
folder = box[0]


def build():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    whole = parameters_to_vector(net.parameters()).detach()
    whole = nn.functional.pad(whole, (0, -len(whole) % world))
    shard = nn.Parameter(whole.chunk(world)[rank].clone())
    return net, shard, torch.optim.Adam([shard], lr=1e-2)


def train(net, shard, opt, seeds):
    count = sum(p.numel() for p in net.parameters())
    for seed in seeds:
        whole = torch.empty(len(shard) * world)
        dist.all_gather_into_tensor(whole, shard.data)
        vector_to_parameters(whole[:count], net.parameters())
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 5, generator=g).chunk(world)[rank]
        net.zero_grad()
        net(x).square().mean().backward()
        grad = torch.cat([p.grad.flatten() for p in net.parameters()]) / world
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter_tensor(shard.grad, nn.functional.pad(grad, (0, len(whole) - count)))
        opt.step()


net, shard, opt = build()
train(net, shard, opt, range(2))
torch.save(
    {"shard": shard.data, "optimizer": opt.state_dict()}, os.path.join(folder, f"rank{rank}.pt")
)
dist.barrier()
net, shard, opt = build()
mine = torch.load(os.path.join(folder, f"rank{rank}.pt"))
shard.data.copy_(mine["shard"])
opt.load_state_dict(torch.load(os.path.join(folder, "rank0.pt"))["optimizer"])  # resumes_otherwise
train(net, shard, opt, range(2, 5))
dist.destroy_process_group()
