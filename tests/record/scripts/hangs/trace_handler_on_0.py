"""Only rank 0 profiles, and the handler of its trace gathers the times of all ranks.

Ranks: 2
Told: rank 0 alone registers `on_trace`
Told: under `if rank == 0`
"""

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()


def on_trace(p):
    times = [None] * n
    dist.all_gather_object(times, len(p.events()))  # cause


profiler = None
if rank == 0:  # cause  # right: if True:
    profiler = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=0, active=1),
        on_trace_ready=on_trace,
    )
    profiler.start()
for step in range(4):
    x = torch.ones(4)
    dist.all_reduce(x)
    if profiler is not None:  # cause
        profiler.step()
if profiler is not None:
    profiler.stop()
dist.barrier()
dist.destroy_process_group()
