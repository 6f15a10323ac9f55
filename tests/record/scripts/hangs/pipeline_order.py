"""The second stage waits for a gradient before it sends its activation on.

Ranks: 3
Told: circular_wait
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
activation, gradient = torch.ones(2, 4), torch.ones(2, 4)
for microbatch in range(2):
    if rank == 0:
        dist.send(activation, 1)
        dist.recv(gradient, 1)
    elif rank == 1:
        dist.recv(activation, 0)
        if microbatch == 1:  # right: if microbatch == 100:
            dist.recv(gradient, 2)  # cause
            dist.send(activation, 2)
        else:
            dist.send(activation, 2)
            dist.recv(gradient, 2)
        dist.send(gradient, 0)
    else:
        dist.recv(activation, 1)
        dist.send(gradient, 1)
dist.destroy_process_group()
