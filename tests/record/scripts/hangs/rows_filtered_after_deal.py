"""Rows that are too short are left out after they are dealt to the ranks.

Ranks: 2
Told: under `if self.at >= len(self.rows)` (rows_filtered_after_deal.py:23), which rank 1 alone goes into
Told: `self.rows = [row for row in rows if len(row) >= shortest]` (rows_filtered_after_deal.py:19)
"""

import torch
import torch.distributed as dist
from torch import nn

TEXTS = ["a b c", "d", "e f", "g h i", "j k", "l", "m n o p", "q", "r s", "t", "u v w", "x"]


class Corpus:
    def __init__(self, rank, world, shortest=2):
        mine = TEXTS[rank::world]
        rows = [t.split() for t in mine]
        self.rows = [row for row in rows if len(row) >= shortest]  # cause # right: self.rows = rows
        self.at = 0

    def next_batch(self):
        if self.at >= len(self.rows):
            return None
        row = self.rows[self.at]
        self.at += 1
        return torch.tensor([[float(len(w)) for w in row[:2]] + [0.0] * (2 - len(row[:2]))])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    corpus = Corpus(rank, world)
    seen = 0
    while (batch := corpus.next_batch()) is not None:  # cause
        loss = model(batch).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad
        model.zero_grad()
        seen += 1
    total = torch.tensor([float(seen)])
    dist.all_reduce(total)
    if rank == 0:
        print("seen", total.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
