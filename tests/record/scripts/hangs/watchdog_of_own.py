"""A watchdog of the script's own ends the rank that saves for longer than its limit.

Ranks: 2
Told: rank 0 sends it to itself
Told: self.limit = 4.0
"""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist


class Watchdog(threading.Thread):
    """Ends the process when no step was made for a while."""

    def __init__(self, limit):
        super().__init__(daemon=True)
        self.limit = limit
        self.beat()

    def beat(self):
        self.last = time.monotonic()

    def run(self):
        while True:
            time.sleep(0.2)
            if time.monotonic() - self.last > self.limit:  # cause
                os.kill(os.getpid(), signal.SIGKILL)  # cause


def save(rank):
    if rank == 0:
        time.sleep(6)  # cause # right: time.sleep(0.1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    watchdog = Watchdog(limit=4.0)
    watchdog.start()
    for step in range(6):
        grad = torch.ones(4)
        dist.all_reduce(grad)
        watchdog.beat()
        if step == 3:
            save(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
