"""A signal reaches one rank, which leaves its loop.

Ranks: 3
Told: if graceful.requested
"""

import os
import torch
import torch.distributed as dist

import signal


class GracefulExit:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, signum, frame):
        self.requested = True


def preempt(step):
    """The scheduler warns the first process of a node alone."""
    if step == 2 and dist.get_rank() == 0:  # right: if step == 2:
        os.kill(os.getpid(), signal.SIGUSR1)


def main():
    dist.init_process_group("gloo")
    graceful = GracefulExit()
    for step in range(6):
        preempt(step)
        if graceful.requested:  # cause
            print("preempted")
            break
        grad = torch.ones(8)
        dist.all_reduce(grad)
    dist.barrier()
    dist.destroy_process_group()


main()
