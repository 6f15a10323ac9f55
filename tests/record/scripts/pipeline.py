"""torch.distributed.pipelining: Schedule1F1B over as many stages as there are ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
stage = PipelineStage(nn.Linear(8, 8), rank, world, torch.device("cpu"))
schedule = Schedule1F1B(
    stage,
    n_microbatches=int(os.environ.get("MICROBATCHES", 8)),
    loss_fn=nn.functional.mse_loss,
)
for step in range(2):
    if rank == 0:
        schedule.step(torch.randn(16, 8))
    elif rank == world - 1:
        schedule.step(target=torch.randn(16, 8), losses=[])
    else:
        schedule.step()
dist.destroy_process_group()
