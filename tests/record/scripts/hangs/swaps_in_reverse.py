"""Odd ranks put the messages of a batch in the reverse order.

Ranks: 2
Told: `for name in order` (swaps_in_reverse.py:
Told: goes by `order = names if rank % 2 == 0 else names[::-1]`
"""

import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv

SHAPES = {"keys": (4, 16), "values": (4, 16), "mask": (4,)}


def swap(tensors, peer, order):
    ops = []
    received = {name: torch.empty(SHAPES[name]) for name in order}
    for name in order:
        ops.append(P2POp(dist.isend, tensors[name], peer))
        ops.append(P2POp(dist.irecv, received[name], peer))
    for work in batch_isend_irecv(ops):
        work.wait()
    return received


def ring_attention(steps):
    rank, world = dist.get_rank(), dist.get_world_size()
    tensors = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    names = list(SHAPES)
    for step in range(steps):
        order = names if rank % 2 == 0 else names[::-1]  # cause # right: order = names
        tensors = swap(tensors, (rank + 1) % world, order)
    return tensors


def main():
    dist.init_process_group("gloo")
    out = ring_attention(2)
    print({name: tuple(t.shape) for name, t in out.items()})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
