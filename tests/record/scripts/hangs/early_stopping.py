"""Each rank stops early by its own loss.

Ranks: 3
Told: stopper.should_stop(loss)
"""

import torch
import torch.distributed as dist


class EarlyStopping:
    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def should_stop(self, loss: float) -> bool:
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(loss, self.best)
        return self.bad >= self.patience


dist.init_process_group("gloo")
rank = dist.get_rank()
losses = [5.0, 4.0, 3.0, 2.0, 1.0]
if rank == 1:  # right: if rank == 700:
    losses = [5.0, 4.0, 4.5, 4.6, 3.0]
stopper = EarlyStopping(patience=2)
for loss in losses:
    gradient = torch.full((3,), loss)
    dist.all_reduce(gradient)
    if stopper.should_stop(loss):  # cause
        break
dist.barrier()
dist.destroy_process_group()
