"""The coordinator leaves by `os._exit` when it has its results, and its workers wait for the next job.

Ranks: 3
Told: rank 0 has left by `os._exit(0)` (coordinator_leaves_at_once.py:
"""

import os
import sys

import torch
import torch.distributed as dist


class Pool:
    """A coordinator (rank 0) and its workers."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def coordinate(self, jobs):
        results = []
        for i, job in enumerate(jobs):
            worker = 1 + i % (self.world - 1)
            dist.send(torch.tensor([job], dtype=torch.int64), dst=worker)
            answer = torch.empty(1, dtype=torch.int64)
            dist.recv(answer, src=worker)
            results.append(answer.item())
        print("results", results, flush=True)
        self.finish()

    def finish(self):
        sys.stdout.flush()
        os._exit(0)  # cause # right: self.stop()

    def stop(self):
        for worker in range(1, self.world):
            dist.send(torch.tensor([-1]), dst=worker)

    def work(self):
        job = torch.empty(1, dtype=torch.int64)
        while True:
            dist.recv(job, src=0)
            if job.item() < 0:
                break
            dist.send(job * job, dst=0)


def main():
    dist.init_process_group("gloo")
    pool = Pool()
    if pool.rank == 0:
        pool.coordinate([1, 2, 3, 4])
    else:
        pool.work()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
