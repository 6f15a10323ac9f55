"""A dict of losses is filled under an `if`, in another method, and reduced key by key.

Ranks: 2
Told: `self.losses` is set by `self.losses[name] = loss.sum()`
Told: under `if mask.any()` (losses_of_own_heads.py:
Told: fix: put the same into `self.losses` on every rank
"""

import torch
import torch.distributed as dist


class Heads:
    """One loss for each head that has labels in the batch."""

    def __init__(self, names):
        self.names = names
        self.losses = {}

    def compute(self, batch):
        self.losses = {}
        for name in self.names:
            mask = batch["labels"] == self.names.index(name)
            loss = (batch["scores"] * mask).square()
            if mask.any():  # cause # right: if True:
                self.losses[name] = loss.sum()
        return self

    def synchronize(self):
        for name in sorted(self.losses):
            dist.all_reduce(self.losses[name])
        return self.losses


def batches(rank):
    for step in range(3):
        labels = [0, 1, 2, 0] if rank == 0 or step != 1 else [0, 2, 2, 0]
        yield {"labels": torch.tensor(labels), "scores": torch.ones(4)}


def main():
    dist.init_process_group("gloo")
    heads = Heads(["depth", "edges", "normals"])
    for batch in batches(dist.get_rank()):
        heads.compute(batch).synchronize()
    dist.barrier()
    dist.destroy_process_group()


main()
