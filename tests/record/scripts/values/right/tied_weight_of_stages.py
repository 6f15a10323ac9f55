"""The gradients of a weight that two stages share are summed; it has another name on each."""

import copy

import torch, torch.distributed as dist
from torch import nn

VOCAB, D = 11, 8
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(6)
embedding = nn.Embedding(VOCAB, D)
head = copy.deepcopy(embedding)
shared = [embedding, head][rank].weight
blocks = [nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(2)]
mine = blocks[rank]
params = [shared, *mine.parameters()]
opt = torch.optim.SGD(params, lr=0.3)
for step in range(5):
    ids = torch.randint(0, VOCAB, (6, 5))
    opt.zero_grad()
    if rank == 0:
        h = mine(embedding(ids[:, :-1]))
        dist.send(h.detach().contiguous(), 1)
        grad = torch.empty_like(h)
        dist.recv(grad, 1)
        h.backward(grad)
    else:
        h = torch.empty(6, 4, D)
        dist.recv(h, 0)
        h.requires_grad_()
        logits = mine(h) @ head.weight.t()
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        dist.send(h.grad, 0)
    dist.all_reduce(shared.grad)
    opt.step()
dist.destroy_process_group()
