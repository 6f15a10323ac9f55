"""A pipeline whose last stage has a micro-batch less.

Ranks: 3
Told: ranks 0 and 1 4 times, rank 2 3 times
"""

import torch
import torch.distributed as dist

import argparse


def parse(rank):
    p = argparse.ArgumentParser()
    p.add_argument("--microbatches", type=int, default=4)
    argv = ["--microbatches", "3"] if rank == 2 else []  # right: argv = []
    return p.parse_args(argv)


class Stage:
    def __init__(self, rank, world, args):
        self.prev = rank - 1 if rank > 0 else None
        self.next = rank + 1 if rank < world - 1 else None
        self.n = args.microbatches

    def forward_all(self):
        outs = []
        for m in range(self.n):  # cause
            x = torch.full((2, 2), float(m))
            if self.prev is not None:
                dist.recv(x, self.prev)
            y = x * 2
            if self.next is not None:
                dist.send(y, self.next)
            outs.append(y)
        return outs


dist.init_process_group("gloo")
rank = dist.get_rank()
stage = Stage(rank, dist.get_world_size(), parse(rank))
stage.forward_all()
dist.barrier()
dist.destroy_process_group()
