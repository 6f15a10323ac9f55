"""Output layer split over the vocabulary."""

import torch
import torch.distributed as dist
import torch.nn as nn

VOCAB, DIM = 64, 24
dist.init_process_group("gloo")
rank, tp = dist.get_rank(), dist.get_world_size()


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class ParallelHead(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.start = rank * VOCAB // tp
        self.weight = nn.Parameter(full.weight.detach().chunk(tp)[rank].clone())

    def forward(self, x):
        return CopyToTP.apply(x) @ self.weight.t()


def vocab_parallel_loss(logits, target, start):
    size = logits.shape[-1]
    top = logits.detach().max(-1, keepdim=True).values
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    logits = logits - top
    total = logits.exp().sum(-1)
    dist.all_reduce(total)
    mine = (target >= start) & (target < start + size)
    local = (target - start).clamp(0, size - 1)
    picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * mine
    dist.all_reduce(picked)
    return (total.log() - picked).mean()


torch.manual_seed(11)
body = nn.Sequential(nn.Embedding(VOCAB, DIM), nn.Linear(DIM, DIM), nn.Tanh())
head = ParallelHead(nn.Linear(DIM, VOCAB, bias=False))
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.3)
g = torch.Generator().manual_seed(3)
for it in range(4):
    tokens = torch.randint(0, VOCAB, (8, 9), generator=g)
    out = head(body(tokens[:, :-1]))
    loss = vocab_parallel_loss(out, tokens[:, 1:], head.start)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        print(it, loss.item())
dist.destroy_process_group()
