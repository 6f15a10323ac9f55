"""Each rank has a part of each sequence (context parallelism); its argument is a mistake."""

import sys, torch
import torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
length = 16
part = length // world
torch.manual_seed(0)


class Mean(torch.autograd.Function):
    """The mean of the parts of all ranks; their loss is a part of one sum."""

    @staticmethod
    def forward(ctx, x):
        x = x.sum(1).contiguous()
        dist.all_reduce(x)
        return x / length

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return (gradient / length)[:, None].expand(-1, part, -1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(20, 8), nn.Embedding(length, 8)
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, tokens):
        begin = 0 if how == "positions" else rank * part
        x = self.token(tokens) + self.place(begin + torch.arange(part))
        return self.head(torch.tanh(self.mix(x)) + Mean.apply(x)[:, None])


net = Model()
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
g = torch.Generator().manual_seed(1)
for _ in range(3):
    row = torch.randint(0, 20, (4, length + 1), generator=g)
    tokens, labels = (each.chunk(world, 1)[rank] for each in (row[:, :-1], row[:, 1:]))
    scores = net(tokens)
    if how == "labels":
        scores, labels = scores[:, :-1], tokens[:, 1:]
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
    count = torch.tensor(labels.numel())
    dist.all_reduce(count)
    opt.zero_grad()
    (loss / count).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    opt.step()
dist.destroy_process_group()
