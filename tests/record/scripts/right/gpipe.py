"""A GPipe schedule."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

sched = ScheduleGPipe(
    PipelineStage(nn.Linear(8, 8), rank, world, torch.device("cpu")),
    n_microbatches=4,
    loss_fn=nn.functional.mse_loss,
)
for i in range(2):
    if rank == 0:
        sched.step(torch.randn(16, 8))
    elif rank == world - 1:
        sched.step(target=torch.randn(16, 8), losses=[])
    else:
        sched.step()
dist.destroy_process_group()
