"""An interleaved pipeline: two stages on each rank."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

dev = torch.device("cpu")
n = 2
stages = [PipelineStage(nn.Linear(8, 8), rank + k * world, world * n, dev) for k in range(n)]
sched = ScheduleInterleaved1F1B(stages, n_microbatches=2 * world, loss_fn=nn.functional.mse_loss)
for i in range(2):
    if rank == 0:
        sched.step(torch.randn(16, 8))
    elif rank == world - 1:
        sched.step(target=torch.randn(16, 8), losses=[])
    else:
        sched.step()
dist.destroy_process_group()
