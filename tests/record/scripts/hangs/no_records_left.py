"""Detection: only images with objects count in the validation.

Ranks: 3
Told: `kept` is 6 items (Record) on ranks 0 and 2, [] on rank 1
"""

import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("val")


@dataclass
class Record:
    image: torch.Tensor
    objects: int


class Detection(Dataset):
    def __init__(self, rank: int, world: int, keep_empty: bool):
        records = [Record(torch.full((4,), float(i)), 0 if i % 3 == 2 else i) for i in range(1, 19)]
        mine = records[rank::world]
        kept = [r for r in mine if r.objects > 0]  # cause  # right: kept = mine
        self.records = mine if keep_empty else kept

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = self.records[index]
        return record.image, torch.tensor(float(record.objects))


class AverageMeter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value: float, n: int):
        self.total += value * n
        self.count += n

    @property
    def average(self) -> float:
        return self.total / self.count


def validate(model, dataset) -> float:
    meter = AverageMeter()
    loader = DataLoader(dataset, batch_size=2)
    with torch.no_grad():
        for images, counts in loader:
            meter.update((model(images).squeeze(1) - counts).abs().mean().item(), len(counts))
    score = torch.tensor(meter.average)
    dist.all_reduce(score)
    return float(score) / dist.get_world_size()


def train_epoch(model, optimizer, dataset):
    for images, counts in DataLoader(dataset, batch_size=2):
        loss = (model(images).squeeze(1) - counts).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    train, val = Detection(rank, world, True), Detection(rank, world, False)
    for epoch in range(2):
        train_epoch(model, optimizer, train)
        log.info("epoch %d: %.3f", epoch, validate(model.module, val))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
