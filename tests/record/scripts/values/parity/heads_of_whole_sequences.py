"""Sequences are split; an all_to_all gives each rank whole ones of some heads.

Its argument is a mistake: the pieces of the ranks are joined in turns.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


how = sys.argv[1] if len(sys.argv) > 1 else ""


class SwapTo(torch.autograd.Function):
    """[b, s/n, h, d] to [b, s, h/n, d]."""

    @staticmethod
    def forward(ctx, x):
        n = dist.get_world_size()
        b, s, h, d = x.shape
        parts = x.reshape(b, s, n, h // n, d).permute(2, 0, 1, 3, 4).contiguous()
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts)
        order = (1, 2, 0, 3, 4) if how == "turns" else (1, 0, 2, 3, 4)
        return out.permute(*order).reshape(b, n * s, h // n, d)

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size()
        b, s, h, d = g.shape
        if how == "turns":
            parts = g.reshape(b, s // n, n, h, d).permute(2, 0, 1, 3, 4).contiguous()
        else:
            parts = g.reshape(b, n, s // n, h, d).transpose(0, 1).contiguous()
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts)
        return out.permute(1, 2, 0, 3, 4).reshape(b, s // n, n * h, d)


class SwapBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return SwapTo.backward(ctx, x)

    @staticmethod
    def backward(ctx, g):
        return SwapTo.forward(ctx, g)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.qkv, self.o, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (SwapTo.apply(t.view(b, s, self.heads, -1)) for t in self.qkv(x).chunk(3, -1))
        o = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.o(SwapBack.apply(o.transpose(1, 2)).reshape(b, s, d))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(40, 16), nn.Embedding(8, 16)
        self.att, self.norm, self.out = Attention(16, 4), nn.LayerNorm(16), nn.Linear(16, 40)

    def forward(self, t, p):
        x = self.emb(t) + self.pos(p)
        return self.out(self.norm(x + self.att(x)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Model()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(1)
    for _ in range(3):
        t = torch.randint(0, 40, (3, 9), generator=g)
        mine = slice(rank * 8 // world, (rank + 1) * 8 // world)
        logits = net(t[:, :-1][:, mine], torch.arange(8)[mine])
        loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:][:, mine].flatten())
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    dist.destroy_process_group()


main()
