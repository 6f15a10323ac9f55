"""A worker leaves out the turns in which it has nothing to send; the server waits for each.

Ranks: 3
Told: rank 2 alone takes the `continue`
Told: past the message at
"""

import torch
import torch.distributed as dist


def serve(weights, workers, rounds):
    for _ in range(rounds):
        for worker in workers:
            gradient = torch.empty_like(weights)
            dist.recv(gradient, src=worker)
            weights -= gradient
        for worker in workers:
            dist.send(weights, dst=worker)


def work(weights, rank, rounds):
    for turn in range(rounds):
        gradient = torch.full_like(weights, float(turn % rank == 0))
        if gradient.abs().sum() == 0:  # cause  # right: if False:
            continue
        dist.send(gradient, dst=0)
        dist.recv(weights, src=0)


dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.zeros(4)
if rank == 0:
    serve(weights, [1, 2], 4)
else:
    work(weights, rank, 4)
dist.barrier()
dist.destroy_process_group()
