"""Rank 0 sets a key in every second epoch, and rank 1 waits for one in each.

Ranks: 2
Told: under `if epoch % save_every == 0` (key_of_some_epochs.py:
Told: fix: let rank 0 set the key in each turn
"""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Announcer:
    """Rank 0 tells the others which checkpoint is the newest."""

    def __init__(self, rank):
        self.rank = rank
        self.store = dist.distributed_c10d._get_default_store()

    def announce(self, epoch, path):
        self.store.set(f"ckpt/{epoch}", path)

    def wait_for(self, epoch):
        key = f"ckpt/{epoch}"
        self.store.wait([key], datetime.timedelta(seconds=600))  # cause
        return self.store.get(key).decode()


def main(epochs=4, save_every=2):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    announcer = Announcer(rank)
    for epoch in range(epochs):
        for _ in range(2):
            opt.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            opt.step()
        if rank == 0:
            if epoch % save_every == 0:  # cause # right: if True:
                path = f"epoch_{epoch}.pt"
                announcer.announce(epoch, path)
        else:
            path = announcer.wait_for(epoch)
            print(f"rank {rank} evaluates {path}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
