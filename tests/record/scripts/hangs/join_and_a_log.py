"""Join covers the collectives of the model, and not the log in its loop.

Ranks: 2
Told: a rank whose loop has ended answers the calls of the models alone, and not the `all_reduce` at
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = [torch.randn(2, 4) for _ in range(3 + rank)]
with Join([model]):
    for x in inputs:  # cause
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shown = loss.detach().clone().reshape(1)
        dist.all_reduce(shown)  # cause # right: shown /= 2
dist.barrier()
dist.destroy_process_group()
