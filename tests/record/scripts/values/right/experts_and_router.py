"""Experts on each rank; the router's gradient is averaged."""

import torch, torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_to_all_single


class Layer(nn.Module):
    def __init__(self, d, world):
        super().__init__()
        self.world = world
        self.router = nn.Linear(d, world, bias=False)
        self.expert = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        gates = F.softmax(self.router(x), -1)
        out = torch.zeros_like(x)
        capacity = x.shape[0] // self.world
        for_each = [gates[:, e].topk(capacity).indices for e in range(self.world)]
        send = torch.cat([x[i] for i in for_each])
        got = all_to_all_single(torch.empty_like(send), send)
        back = all_to_all_single(torch.empty_like(send), self.expert(got))
        for e, (rows, part) in enumerate(zip(for_each, back.split(capacity))):
            out = out.index_add(0, rows, part * gates[rows, e : e + 1])
        return x + out


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
stem, layer, head = nn.Linear(5, 8), Layer(8, world), nn.Linear(8, 1)
torch.manual_seed(10 + rank)
for p in layer.expert.parameters():
    nn.init.normal_(p, std=0.1)
dense = [*stem.parameters(), *head.parameters(), *layer.router.parameters()]
params = [*stem.parameters(), *layer.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=1e-2)
for step in range(4):
    x = torch.randn(16, 5)
    loss = (head(layer(stem(x))) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for p in dense:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG) if False else dist.all_reduce(
            p.grad.div_(world)
        )
    for p in layer.expert.parameters():
        p.grad.div_(world)
    opt.step()
dist.destroy_process_group()
