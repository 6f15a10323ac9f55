"""A worker of one rank's loader reads an item for longer than the loader waits.

Ranks: 2
Told: a worker took longer for a batch than `return DataLoader(
Told: each item is read by `def __getitem__(self, i)` (loader_is_too_slow.py:
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Videos(Dataset):
    """Clips; some lie on a slow disk."""

    def __init__(self, slow):
        self.slow = set(slow)

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if i in self.slow:
            time.sleep(8)  # right: time.sleep(0.1)
        return torch.randn(6), torch.tensor(i % 2)


def build(rank, world):
    data = Videos(slow=[13])
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    return DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, timeout=4)  # cause


def train(model, loader, epochs):
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(DDP(torch.nn.Linear(6, 2)), build(dist.get_rank(), dist.get_world_size()), epochs=1)
    dist.destroy_process_group()
