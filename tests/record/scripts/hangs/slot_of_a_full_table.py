"""A dataset looks for a free slot of its table, which the shard of one rank has filled.

Ranks: 2
Told: rank 1 turns for ever in `while self.slots[at] is not None` (slot_of_a_full_table.py:
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

SLOTS = 8  # right: SLOTS = 32


class Deduplicated(Dataset):
    def __init__(self, rank):
        self.words = [f"word{at}" for at in range(6 + 4 * rank)]
        self.slots = [None] * SLOTS

    def __len__(self):
        return len(self.words)

    def place(self, word):
        at = sum(map(ord, word)) % len(self.slots)
        while self.slots[at] is not None:  # cause
            at = (at + 1) % len(self.slots)
        self.slots[at] = word
        return at

    def __getitem__(self, index):
        return torch.tensor(float(self.place(self.words[index])))


def main():
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    for batch in DataLoader(Deduplicated(dist.get_rank()), batch_size=2):
        total += batch.sum()
    dist.all_reduce(total)
    dist.barrier()
    dist.destroy_process_group()


main()
