"""Gradients are averaged by hand, and that of a sparse embedding is left out.

Found: gradients_differ
"""

import torch, torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(2)
words, out = nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 2)
opt = torch.optim.SGD([*words.parameters(), *out.parameters()], lr=0.5)
rows = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    ids = torch.randint(0, 50, (12, 6), generator=rows)
    y = torch.randint(0, 2, (12,), generator=rows)
    opt.zero_grad()
    nn.functional.cross_entropy(out(words(ids)), y).backward()
    for p in (*words.parameters(), *out.parameters()):
        if not p.grad.is_sparse:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
    opt.step()  # gradients_differ
