"""Balanced loss: class weights are counted over all ranks before training.

Ranks: 3
Told: `count_labels()` is shape [2] int64 on rank 0, shape [4] int64 on rank 1
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


@dataclass
class Options:
    classes: int = 5
    batch: int = 4
    epochs: int = 1


def make_dataset(options: Options) -> TensorDataset:
    torch.manual_seed(3)
    labels = torch.arange(24) // 5
    return TensorDataset(torch.randn(24, 6), labels)


def shard(dataset, rank: int, world: int) -> Subset:
    size = len(dataset) // world
    return Subset(dataset, range(rank * size, (rank + 1) * size))


def count_labels(dataset) -> torch.Tensor:
    labels = torch.stack([label for _, label in dataset])
    return torch.bincount(labels)  # cause  # right: return torch.bincount(labels, minlength=5)


class ClassWeights:
    def __init__(self, dataset):
        self.counts = count_labels(dataset).float()

    def reduce(self) -> torch.Tensor:
        total = self.counts.clone()
        dist.all_reduce(total)
        return total.sum() / total.clamp(min=1.0)


class Classifier(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.head = nn.Linear(16, options.classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def train(options: Options):
    rank, world = dist.get_rank(), dist.get_world_size()
    data = shard(make_dataset(options), rank, world)
    weights = ClassWeights(data).reduce()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Classifier(options))
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of = nn.CrossEntropyLoss(weight=weights[: options.classes])
    for _ in range(options.epochs):
        for x, y in DataLoader(data, batch_size=options.batch):
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(Options())
    dist.barrier()
    dist.destroy_process_group()
