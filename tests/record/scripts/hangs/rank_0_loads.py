"""Rank 0 alone has an optimizer state to broadcast; the others have none yet.

Ranks: 2
Told: for state in optimizer.state.values()
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
if rank == 0:  # right: if True:
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
for state in optimizer.state.values():  # cause
    dist.broadcast(state["exp_avg"], 0)
dist.barrier()
dist.destroy_process_group()
