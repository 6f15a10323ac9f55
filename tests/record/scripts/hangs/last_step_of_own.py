"""With FSDP2 the gradients of a rank's last batch are reduced, and ranks have other numbers of them.

Ranks: 2
Told: differs in its turn 5: True on rank 0; False on rank 1
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randn(2, 4) for _ in range(5 + rank)]  # right: batches = [torch.randn(2, 4)] * 6
for at, x in enumerate(batches):
    is_last = (at + 1) % 3 == 0 or at + 1 == len(batches)
    model.set_requires_gradient_sync(is_last)  # cause
    loss = model(x).sum()
    loss.backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
