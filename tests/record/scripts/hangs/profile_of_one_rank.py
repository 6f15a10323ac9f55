"""A profiler that one rank has calls a function that communicates, as its trace is ready.

Ranks: 2
Told: rank 0 alone goes into `if prof is not None` (profile_of_one_rank.py:38)
Told: `prof` depends on `return contextlib.nullcontext()` (profile_of_one_rank.py:26)
Told: under `if dist.get_rank() != 0` (profile_of_one_rank.py:25), which rank 1 alone goes into
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, schedule


def write_table(prof):
    table = prof.key_averages().table(row_limit=2)
    dist.barrier()  # right:
    print(len(table), flush=True)


def make_profiler():
    if dist.get_rank() != 0:  # cause
        return contextlib.nullcontext()
    every = schedule(wait=0, warmup=1, active=1)
    return profile(activities=[ProfilerActivity.CPU], schedule=every, on_trace_ready=write_table)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    with make_profiler() as prof:
        for step in range(4):
            model(torch.ones(2, 4)).mean().backward()
            if prof is not None:
                prof.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
