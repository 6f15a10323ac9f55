"""One rank is kept as a spare and looks after the logs.

Ranks: 3
Told: under `if job.is_spare`
"""

import os

import torch
import torch.distributed as dist


class Job:
    def __init__(self, spares):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.active = self.world - spares

    @property
    def is_spare(self):
        return self.rank >= self.active

    def start(self):
        dist.init_process_group("gloo")  # cause


def serve_logs(job):
    print("rank", job.rank, "looks after the logs")


def main():
    job = Job(spares=int(os.environ.get("SPARES", "1")))
    if job.is_spare:  # cause  # right: if False:
        serve_logs(job)
        return
    job.start()
    x = torch.ones(3)
    dist.all_reduce(x)
    print(job.rank, x)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
