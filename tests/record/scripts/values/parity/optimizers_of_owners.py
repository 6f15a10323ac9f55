"""Rank 0 owns the actor, rank 1 the critic; each is clipped by itself, as in one process."""

import torch
import torch.distributed as dist
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.actor(x), self.critic(x)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = Agent()
halves = [net.actor, net.critic]
own = [h for i, h in enumerate(halves) if i % world == rank]
opts = [torch.optim.Adam(h.parameters(), lr=1e-2) for h in own]
data = torch.Generator().manual_seed(1)
for step in range(5):
    x, a = torch.randn(8, 6, generator=data), torch.randint(3, (8,), generator=data)
    r = torch.randn(8, 1, generator=data) * 5
    x, a, r = (t.chunk(world)[rank] for t in (x, a, r))
    logits, value = net(x)
    adv = (r - value).detach()[:, 0]
    policy = (nn.functional.cross_entropy(logits, a, reduction="none") * adv).mean()
    (policy + nn.functional.mse_loss(value, r)).backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p) / world)
        at += p.numel()
    for h, opt in zip(own, opts):
        nn.utils.clip_grad_norm_(h.parameters(), 0.2)
        opt.step()
    for i, h in enumerate(halves):
        for p in h.parameters():
            dist.broadcast(p.data, i % world)
    net.zero_grad()
dist.destroy_process_group()
