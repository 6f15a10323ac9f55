"""Semi-supervised training: crops are drawn until one is not empty; a consistency term now and then.

Ranks: 3
Told: values differ before: `left` is
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    """Images; some shards have many empty (black) regions."""

    def __init__(self, rank: int, size: int = 12):
        self.images = torch.ones(size, 8, 8)
        self.images[:, :, : 2 * rank] = 0.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


class Augment:
    def __init__(self, crop: int = 2, tries: int = 50):
        self.crop, self.tries = crop, tries

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        for _ in range(self.tries):
            left = int(torch.randint(0, image.shape[1] - self.crop + 1, (1,)))  # cause
            view = image[: self.crop, left : left + self.crop]
            if view.sum() > 0:
                break
        return view.flatten()


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, p_consistency: float):
        self.p = p_consistency
        self.student = Student()
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1)
        self.augment = Augment()
        self.coin = torch.Generator().manual_seed(11)

    def consistency(self, views):
        center = self.student(views).mean(0)
        shared = center.detach().clone()
        dist.all_reduce(shared)
        return ((center - shared / dist.get_world_size()) ** 2).mean()

    def step(self, batch):
        views = torch.stack([self.augment(image) for image in batch])
        loss = ((self.student(views) - views) ** 2).mean()
        if torch.rand(()) < self.p:  # right: if torch.rand((), generator=self.coin) < self.p:
            loss = loss + self.consistency(views)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.student.parameters():
            dist.all_reduce(p.grad)
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    loader = DataLoader(Scenes(dist.get_rank()), batch_size=3)
    trainer = Trainer(p_consistency=0.5)
    for epoch in range(args.epochs):
        for batch in loader:
            loss = trainer.step(batch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
