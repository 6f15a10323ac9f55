"""The main process gathers what it saves; the others wait at a barrier.

Ranks: 4
Told: if self.is_main_process
"""

import torch
import torch.distributed as dist
from torch import nn


class Checkpointer:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.is_main_process = dist.get_rank() == 0

    def _collect(self):
        shards = {}
        for name, value in self.model.state_dict().items():
            parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, value)
            shards[name] = torch.cat([p.flatten() for p in parts])
        return shards

    def maybe_save(self, step):
        if step % self.every:
            return
        if self.is_main_process:  # cause  # right: if True:
            state = self._collect()
            state.clear()
        else:
            dist.barrier()


def train(args):
    model = nn.Linear(3, 2)
    saver = Checkpointer(model, every=args["save_every"])
    for step in range(1, 5):
        grad = torch.ones(2, 3)
        dist.all_reduce(grad)
        saver.maybe_save(step)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train({"save_every": 2})
    dist.destroy_process_group()
