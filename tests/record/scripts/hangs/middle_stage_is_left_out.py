"""torch's pipeline: the stage in the middle takes no step in the last epoch.

Ranks: 3
Told: rank 1 does not go into `if epoch == 0`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    part = nn.Linear(4, 4)
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    for epoch in range(2):
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y)
        elif epoch == 0:  # cause # right: elif epoch >= 0:
            schedule.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
