"""Columns are gathered within each line of tensor-parallel ranks; a scale of all ranks is gathered."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "model"))
data, model = mesh.get_group("data"), mesh.get_group("model")
part, line = dist.get_rank(model), dist.get_rank(data)


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=model)
        return grad


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own):
        parts = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(parts, own.contiguous(), group=model)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(2, -1)[part].contiguous()


class Quantised(torch.autograd.Function):
    """Rounds to a size that all ranks know; the gradient passes straight through."""

    @staticmethod
    def forward(ctx, x):
        sizes = torch.empty(world)
        dist.all_gather_into_tensor(sizes, x.abs().max().reshape(1))
        size = sizes.max() / 127
        return (x / size).round() * size

    @staticmethod
    def backward(ctx, grad):
        return grad


torch.manual_seed(0)
full = nn.Linear(6, 8)
head = nn.Linear(8, 3)
norm = nn.LayerNorm(6)
split = nn.Linear(6, 4)
with torch.no_grad():
    split.weight.copy_(full.weight.chunk(2)[part])
    split.bias.copy_(full.bias.chunk(2)[part])
every = [*norm.parameters(), *split.parameters(), *head.parameters()]
opt = torch.optim.AdamW(every, lr=1e-2)
rows = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(16, 6, generator=rows).chunk(world // 2)[line]
    opt.zero_grad()
    hidden = Gather.apply(split(Copy.apply(norm(x))))
    head(Quantised.apply(hidden.relu())).pow(2).mean().backward()
    for p in every:
        dist.all_reduce(p.grad, group=data)
        p.grad /= world // 2
    opt.step()
dist.destroy_process_group()
