"""Heads are split by hand: the gradient of what all of them take is a sum over the ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))


def replicate(module):
    for name, p in list(module.named_parameters(recurse=False)):
        new = nn.Parameter(distribute_tensor(p.detach(), mesh, [Replicate()]))
        module.register_parameter(name, new)
    for child in module.children():
        replicate(child)
    return module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.qkv = nn.Parameter(torch.randn(4, 16, 12) / 4)
        self.out = nn.Parameter(torch.randn(4, 4, 16) / 4)
        self.leave = nn.Linear(16, 3)


torch.manual_seed(17)
net = Net()
replicate(net.enter), replicate(net.leave)
net.qkv = nn.Parameter(distribute_tensor(net.qkv.detach(), mesh, [Shard(0)]))
net.out = nn.Parameter(distribute_tensor(net.out.detach(), mesh, [Shard(0)]))
opt = torch.optim.SGD(net.parameters(), lr=0.2)
g = torch.Generator().manual_seed(5)
for it in range(3):
    x = torch.randn(6, 5, 8, generator=g)
    h = net.enter(DTensor.from_local(x, mesh, [Replicate()]))
    local = h.to_local(grad_placements=[Partial()])
    q, k, v = torch.einsum("bsd,hde->bhse", local, net.qkv.to_local()).chunk(3, -1)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = torch.einsum("bhse,hed->bsd", mixed, net.out.to_local())
    y = DTensor.from_local(y, mesh, [Partial()]).redistribute(placements=[Replicate()])
    loss = net.leave(h + y).to_local().sub(x[..., :3]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
