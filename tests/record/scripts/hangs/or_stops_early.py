"""A rank that knows already that it stops does not ask the others: `or` leaves the call out.

Ranks: 2
Told: rank 0 alone leaves out what follows `or` in `done or others_stop(done)`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def others_stop(flag):
    wants = torch.tensor([int(flag)])
    dist.all_reduce(wants, op=dist.ReduceOp.MAX)
    return bool(wants.item())


for step in range(6):
    grad = torch.ones(3)
    dist.all_reduce(grad)
    done = step == 2 and rank == 0
    if done or others_stop(done):  # cause  # right: if others_stop(done):
        break
dist.barrier()
dist.destroy_process_group()
