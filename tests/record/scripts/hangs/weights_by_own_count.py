"""A learner sends its weights by its updates, and the actors take them by their episodes.

Ranks: 3
Told: rank 0 comes to weights_by_own_count.py:
Told: answer it at weights_by_own_count.py:
Told: the two conditions do not count the same
"""

import torch
import torch.distributed as dist


def learn(world):
    weights, updates = torch.zeros(4), 0
    for _ in range(12):
        for actor in range(1, world):
            row = torch.empty(4)
            dist.recv(row, src=actor)
            weights += row
        updates += 1
        if updates % 3 == 0:  # cause
            dist.broadcast(weights, src=0)


def act(rank):
    weights, episodes = torch.zeros(4), 0
    for step in range(12):
        dist.send(weights + rank, dst=0)
        episodes += (step + 1) % 2  # right: episodes += 1
        if episodes % 3 == 0 and step % 2 == 0:  # cause  # right: if episodes % 3 == 0:
            dist.broadcast(weights, src=0)


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    learn(dist.get_world_size())
else:
    act(rank)
dist.barrier()
dist.destroy_process_group()
