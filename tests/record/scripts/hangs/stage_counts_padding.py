"""Two stages train until they have seen enough tokens, and each of them counts for itself.

Ranks: 2
Told: `tokens` is set by `tokens += ids.numel()` (stage_counts_padding.py:
Told: on rank 0, by `tokens += int(ids.ne(PAD).sum())` (stage_counts_padding.py:
Told: fix: count `tokens` alike on all ranks
"""

import torch
import torch.distributed as dist
from torch import nn

PAD = 0


def read_rows():
    while True:
        ids = torch.tensor([[5, 3, 8, PAD], [7, 2, PAD, PAD]])
        yield ids


def main(budget=20):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    words, head = nn.Embedding(10, 4), nn.Linear(4, 10)
    tokens = 0
    rows = read_rows()
    while tokens < budget:
        ids = next(rows)
        if rank == 0:
            hidden = words(ids).detach()
            dist.send(hidden, 1)
            tokens += ids.numel()  # cause # right: tokens += int(ids.ne(PAD).sum())
        else:
            hidden = torch.empty(2, 4, 4)
            dist.recv(hidden, 0)
            nn.functional.cross_entropy(head(hidden).flatten(0, 1), ids.flatten()).backward()
            tokens += int(ids.ne(PAD).sum())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
