"""A checkpoint is loaded under the `if` of the rank that logs; loading has a barrier.

Ranks: 3
Told: rank 0 alone goes into `if is_first()`
Told: make the calls under `if is_first()`
"""

import logging

import torch
import torch.distributed as dist


def is_first():
    return dist.get_rank() == 0


class Checkpoints:
    def __init__(self, path):
        self.path = path

    def save(self, model):
        if is_first():
            torch.save(model.state_dict(), self.path)
        dist.barrier()

    def load(self, model):
        model.load_state_dict(torch.load(self.path))
        dist.barrier()


dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
checkpoints = Checkpoints("model.pt")
checkpoints.save(model)
if is_first():  # cause  # right: if True:
    logging.info("the model: %s", model)
    checkpoints.load(model)
for parameter in model.parameters():
    dist.all_reduce(parameter.data)
dist.destroy_process_group()
