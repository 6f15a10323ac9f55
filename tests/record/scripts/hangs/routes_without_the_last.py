"""A table of peers is filled by an `if` that leaves one rank without its neighbour.

Ranks: 3
Told: rank 1 sends in the loop `for peer in self.routes.values()`
Told: under `if rank < size - 2` (routes_without_the_last.py:
"""

import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend


def build_routes(rank, size):
    routes = dict()
    if rank >= 1:
        routes["up"] = rank - 1
    if rank < size - 2:  # cause # right: if rank < size - 1:
        routes["down"] = rank + 1
    return routes


class Stencil:
    def __init__(self, rank, size):
        self.routes = build_routes(rank, size)

    def swap(self, cells):
        inbox, ops = [], []
        for peer in self.routes.values():
            inbox.append(torch.zeros_like(cells))
            ops += [P2POp(isend, cells, peer), P2POp(irecv, inbox[-1], peer)]
        requests = batch_isend_irecv(ops)
        for request in requests:
            request.wait()
        return sum(inbox)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    stencil = Stencil(dist.get_rank(), dist.get_world_size())
    cells = torch.ones(3)
    for _ in range(2):
        cells = cells + stencil.swap(cells)
    dist.destroy_process_group()
