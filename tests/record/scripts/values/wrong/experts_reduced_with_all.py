"""Expert parallelism: gradients of all parameters are averaged over all ranks, those of experts too.

Found: replicas_differ
"""

import torch, torch.distributed as dist
from torch import nn


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g.contiguous())
        return out


class MoE(nn.Module):
    def __init__(self, dim, experts, world, rank):
        super().__init__()
        everyone = [nn.Linear(dim, dim) for _ in range(experts)]
        self.local = experts // world
        self.experts = nn.ModuleList(everyone[rank * self.local : (rank + 1) * self.local])
        self.world = world

    def forward(self, x):
        # tokens are routed by position: token i to expert i % experts
        n, d = x.shape
        parts = x.view(n // (self.world * self.local), self.world * self.local, d).transpose(0, 1)
        sent = AllToAll.apply(parts.reshape(self.world, -1, d)) if self.world > 1 else parts
        sent = sent.reshape(self.world, self.local, -1, d)
        done = torch.stack([e(sent[:, i]) for i, e in enumerate(self.experts)], 1)
        back = AllToAll.apply(done.reshape(self.world, -1, d)) if self.world > 1 else done
        return back.reshape(self.world * self.local, -1, d).transpose(0, 1).reshape(n, d)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(9)
first, moe, head = nn.Linear(6, 8), MoE(8, 4, world, rank), nn.Linear(8, 2)
params = [*first.parameters(), *moe.parameters(), *head.parameters()]
opt = torch.optim.SGD(params, lr=0.1)
gen = torch.Generator().manual_seed(1)
for step in range(4):
    x, y = torch.randn(32, 6, generator=gen), torch.randn(32, 2, generator=gen)
    x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    loss = (head(torch.tanh(moe(torch.tanh(first(x))))) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for p in params:
        dist.all_reduce(p.grad)  # replicas_differ
        p.grad /= world
    opt.step()
dist.destroy_process_group()
