"""The kernel kills a rank that loads too much.

Ranks: 3
Told: rank 2 dies by SIGKILL
Told: rank 2 sends it to itself
"""

import os
import signal

import torch
import torch.distributed as dist


class Loader:
    def __init__(self, rank):
        self.rank, self.held = rank, []

    def load(self, part):
        self.held.append(torch.zeros(16))
        if self.rank == 2 and part == 3:  # right: if part > 9:
            os.kill(os.getpid(), signal.SIGKILL)  # cause
        return self.held[-1]


def main():
    dist.init_process_group("gloo")
    loader = Loader(dist.get_rank())
    for part in range(5):
        rows = loader.load(part)
        dist.all_reduce(rows)  # cause
    dist.destroy_process_group()


main()
