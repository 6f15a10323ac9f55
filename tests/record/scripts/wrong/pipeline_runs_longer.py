"""Rank 1 runs a step more of a looped pipeline."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleLoopedBFS

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
dev = torch.device("cpu")
at = (rank, rank + world)
stages = [PipelineStage(nn.Linear(8, 8), k, world * 2, dev) for k in at]
sched = ScheduleLoopedBFS(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
for i in range(2 + (rank == 1)):
    args = [torch.randn(16, 8)] if rank == 0 else []
    more = {"target": torch.randn(16, 8), "losses": []} if rank == world - 1 else {}
    sched.step(*args, **more)  # here
dist.barrier()  # here
dist.destroy_process_group()
