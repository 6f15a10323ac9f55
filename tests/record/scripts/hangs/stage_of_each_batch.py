"""torch's pipeline: a stage is made for each batch, with the lengths that each rank has.

Ranks: 2
Told: receives the shape that its `PipelineStage` states by `input_args=(example,)`
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

LENGTHS = {0: [5, 7], 1: [7, 8]}  # right: LENGTHS = {0: [5, 7], 1: [5, 7]}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    part = torch.nn.Linear(4, 4)
    for length in LENGTHS[rank]:
        batch = torch.ones(2, length, 4)
        example = batch[:1].requires_grad_(rank > 0)
        stage = PipelineStage(
            part,
            rank,
            2,
            torch.device("cpu"),
            input_args=(example,),  # cause
            output_args=(part(example),),
        )
        schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
        if stage.is_first:
            schedule.step(batch)
        else:
            schedule.step(target=torch.zeros_like(batch))
    dist.barrier()


main()
