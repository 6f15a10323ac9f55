"""Context parallelism: keys of all ranks, gradients averaged; a strided copy is reduced."""

import torch, torch.distributed as dist
from torch import nn
import torch.nn.functional as F


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(dist.get_world_size(), 1)[dist.get_rank()]


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        k, v = Gather.apply(k), Gather.apply(v)
        n, start = q.shape[1], dist.get_rank() * q.shape[1]
        mask = torch.arange(k.shape[1])[None, :] <= (start + torch.arange(n))[:, None]
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(8)
model = nn.Sequential(nn.Linear(4, 16), Block(16), Block(16), nn.Linear(16, 4))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(0)
for step in range(4):
    seq = torch.randn(2, 33, 4, generator=gen)
    x, y = (t.chunk(world, 1)[rank] for t in (seq[:, :-1], seq[:, 1:]))
    loss = F.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
dist.destroy_process_group()
