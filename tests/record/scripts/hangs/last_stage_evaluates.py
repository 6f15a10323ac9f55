"""torch's pipeline: only the last stage runs the schedule for its evaluation.

Ranks: 2
Told: rank 0 does not go into `if stage.is_last`
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(torch.nn.Linear(4, 4), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, t: (y - t).pow(2).mean())
x, t = torch.ones(4, 4), torch.zeros(4, 4)


def step():
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=t)


for i in range(2):
    step()
if stage.is_last:  # cause  # right: if True:
    schedule.step(target=t) if rank else schedule.step(x)
dist.barrier()
