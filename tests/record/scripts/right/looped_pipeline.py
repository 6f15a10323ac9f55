"""A looped pipeline, breadth first: two stages on each rank."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleLoopedBFS

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
dev = torch.device("cpu")
at = (rank, rank + world)
stages = [PipelineStage(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), k, world * 2, dev) for k in at]
sched = ScheduleLoopedBFS(stages, n_microbatches=2 * world, loss_fn=nn.functional.mse_loss)
for i in range(2):
    args = [torch.randn(16, 8)] if 0 in at else []
    more = {"target": torch.randn(16, 8), "losses": []} if 2 * world - 1 in at else {}
    sched.step(*args, **more)
dist.destroy_process_group()
