"""A pipeline tags its messages with its step, which one rank does not count where it drops a batch.

Ranks: 2
Told: rank 1 alone takes the `continue`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
step = 0
for i in range(5):
    if rank == 0:
        activation = torch.full((4,), float(i))
        dist.send(activation, 1, tag=step)  # cause
    else:
        buffer = torch.empty(4)
        dist.recv(buffer, 0, tag=step)  # cause
        if buffer[0] == 2:  # cause  # right: if False:
            continue
    step += 1
dist.barrier()
dist.destroy_process_group()
