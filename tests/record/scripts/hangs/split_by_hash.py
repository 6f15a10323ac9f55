"""Documents are dealt to training and validation by the hash of their language.

Ranks: 2
Told: items are left out by `names = [name for name in NAMES if is_training(name)]` (split_by_hash.py:28)
Told: which goes by `hash(language)` (split_by_hash.py:23): unless PYTHONHASHSEED is set, the hash of a string
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

#: of each language twice as many as of the one before
NAMES = [
    f"{language}-{number}"
    for at, language in enumerate(["da", "de", "en", "es", "fr", "it", "nl", "pl"])
    for number in range(2 ** (at + 1))
]


def is_training(name):
    language = name.split("-")[0]
    return hash(language) % 5 < 3  # cause # right: return len(language) < 3


def make_rows(rank, world):
    torch.manual_seed(rank)
    names = [name for name in NAMES if is_training(name)]
    return [torch.randn(4) for _ in names[rank::world]]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(4, 1))
    for epoch in range(2):
        for x in make_rows(rank, world):
            model(x).pow(2).mean().backward()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
