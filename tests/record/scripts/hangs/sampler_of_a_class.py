"""A sampler of its own class deals rows without a pad.

Ranks: 3
Told: depends on `sampler = ShardedSampler(dataset, rank, world)`
Told: and that from `return iter(order[self.rank :: self.world])`
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count=43):
        rng = random.Random(1)
        self.rows = [[rng.randrange(50) for _ in range(6)] for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor(row), torch.tensor(sum(row) % 2)


class ShardedSampler(Sampler):
    """Gives each rank its own rows."""

    def __init__(self, dataset, rank, world, seed=0):
        self.dataset, self.rank, self.world, self.seed = dataset, rank, world, seed
        self.epoch = 0

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=g).tolist()
        return iter(order[self.rank :: self.world])  # cause # right: return iter(order[:14])

    def __len__(self):
        return len(range(self.rank, len(self.dataset), self.world))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1))


def run():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Sentences()
    sampler = ShardedSampler(dataset, rank, world)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    model = DDP(Classifier())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.epoch = epoch
        for step, (ids, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(ids), labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} done")
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
