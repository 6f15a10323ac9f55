"""A column of a grid is received into, which is not in one piece.

Ranks: 2
Told: rank 0 raises RuntimeError: input tensor has to be contiguous
Told: and receive into a tensor of its own that is copied to its place
"""

import torch
import torch.distributed as dist


def exchange(cells, rank):
    if rank == 0:
        dist.send(cells[:, -2].contiguous(), 1)
        dist.recv(cells[:, -1], 1)  # cause # right: dist.recv(cells[:, -1].contiguous(), 1)
    else:
        edge = torch.empty(len(cells))
        dist.recv(edge, 0)
        dist.send(edge, 0)


def main():
    dist.init_process_group("gloo")
    exchange(torch.ones(4, 6), dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()


main()
