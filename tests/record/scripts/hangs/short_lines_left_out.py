"""A dataset leaves out lines that are too short, and each rank reads other lines.

Ranks: 2
Told: the loop `for x in loader` (short_lines_left_out.py:45) has more turns on some ranks
Told: items are left out by an `if`: `if len(words) < 3` (short_lines_left_out.py:34)
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

LINES = (
    ["a cat sat", "no", "a dog ran", "go", "it was late", "we met there"],
    [
        "rain fell all night",
        "the road was wet",
        "she read on",
        "they left it",
        "snow came in",
        "he slept on",
    ],
)


class Lines(IterableDataset):
    def __init__(self, lines):
        self.lines = lines

    def __iter__(self):
        for line in self.lines:
            words = line.split()
            if len(words) < 3:  # cause # right: if not words:
                continue
            yield torch.ones(4) * len(words)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    loader = DataLoader(Lines(LINES[dist.get_rank()]), batch_size=1)
    for epoch in range(2):
        for x in loader:
            model(x).pow(2).mean().backward()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
