"""The first stage leaves out the last batch, which is not whole, and the other one does not.

Ranks: 2
Told: rank 0 alone takes the `continue`:33 under `if len(x) < BATCH` (stage_leaves_out_a_batch.py:32)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

BATCH = 8


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6), nn.Linear(6, 1)]
    stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    run(schedule, stage, torch.randn(20, 6), torch.randn(20, 1))
    dist.barrier()
    dist.destroy_process_group()


def run(schedule, stage, rows, targets):
    targets = torch.cat([targets, targets])
    for start in range(0, len(rows), BATCH):  # right: for start in range(0, 16, BATCH):
        x = rows[start : start + BATCH]
        if stage.is_first:
            if len(x) < BATCH:  # cause
                continue
            schedule.step(x)
        else:
            schedule.step(target=targets[start : start + BATCH], losses=[])


if __name__ == "__main__":
    main()
