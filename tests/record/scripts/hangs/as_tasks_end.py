"""Results are reduced in the order in which each rank's threads end.

Ranks: 2
Told: gives its items in the order in which tasks end
"""

import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
import torch.distributed as dist

TASKS = {"short": 3, "long": 5, "middle": 4}


def score(size, rank):
    time.sleep(0.3 * (size if rank == 0 else 8 - size))
    return torch.rand(size)


dist.init_process_group("gloo")
rank = dist.get_rank()
means = {}
with ThreadPoolExecutor(3) as pool:
    jobs = {pool.submit(score, size, rank): name for name, size in TASKS.items()}
    for job in as_completed(jobs):  # cause # right: for job in jobs:
        result = job.result()
        dist.all_reduce(result)
        means[jobs[job]] = result.mean().item()
dist.destroy_process_group()
