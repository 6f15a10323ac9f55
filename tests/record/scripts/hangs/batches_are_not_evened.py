"""A loader leaves the last batch as it is, so that one rank has a batch less.

Ranks: 2
Told: `even_batches=False`
Told: leave out `even_batches=False`
"""

import torch
import torch.distributed as dist


class Deal:
    """Deals batches to ranks, as accelerate does."""

    def __init__(self, rows, size, even_batches=True):
        batches = [rows[at : at + size] for at in range(0, len(rows), size)]
        rest = -len(batches) % dist.get_world_size()
        self.batches = batches + batches[:rest] * even_batches

    def __iter__(self):
        return iter(self.batches[dist.get_rank() :: dist.get_world_size()])


def evaluate(loader):
    right = torch.zeros(1)
    for batch in loader:
        found = batch.sum().reshape(1)
        every = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(every, found)
        right += sum(every)
    return right


def main():
    dist.init_process_group("gloo")
    rows = torch.arange(20.0).reshape(10, 2)
    loader = Deal(rows, 2, even_batches=False)  # cause  # right: loader = Deal(rows, 2)
    for _ in range(2):
        evaluate(loader)
    dist.barrier()
    dist.destroy_process_group()


main()
