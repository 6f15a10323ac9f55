"""A sampler of the script's own shuffles by a generator that each rank seeds by its number.

Ranks: 2
Told: its items are drawn at random by `random.shuffle(order)` (sampler_seeded_by_rank.py:
Told: fix: draw the same on all ranks at sampler_seeded_by_rank.py:
"""

import random

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler

LENGTHS = [1 + 7 * number % 13 for number in range(60)]


class Packs(Sampler):
    def __init__(self, lengths, most, rank, world):
        self.lengths, self.most, self.rank, self.world = lengths, most, rank, world

    def __iter__(self):
        order = list(range(len(self.lengths)))
        random.shuffle(order)  # cause
        packs, pack = [], []
        for index in order:
            if pack and sum(self.lengths[each] for each in pack) > self.most:
                packs.append(pack)
                pack = []
            pack.append(index)
        packs.append(pack)
        packs = packs[: len(packs) // self.world * self.world]
        yield from packs[self.rank :: self.world]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    random.seed(3 + 6 * rank)  # right: random.seed(3)
    rows = [torch.ones(length) for length in LENGTHS]
    loader = DataLoader(rows, batch_sampler=Packs(LENGTHS, 14, rank, world), collate_fn=torch.cat)
    weight = torch.ones(1, requires_grad=True)
    for epoch in range(3):
        for row in loader:
            (row.sum() * weight).backward()
            dist.all_reduce(weight.grad)
    dist.destroy_process_group()


main()
