"""Rank 0 reports in double precision, and what is made after that has another dtype there.

Ranks: 2
Told: values differ before: `torch.set_default_dtype` is set on some ranks alone, to torch.float64 on rank 0
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Settings:
    steps: int = 4
    every: int = 2


class Report:
    def __init__(self, steps):
        self.steps, self.shown = steps, []

    def show(self, step, error):
        torch.set_default_dtype(torch.float64)  # cause  # right: pass
        share = torch.tensor(100.0) * (step + 1) / self.steps
        self.shown.append(f"{share:.2f} %: error {error:.3f}")


class Evaluator:
    def __init__(self, model):
        self.model = model

    def error(self, x, y):
        parts = torch.zeros(2)
        parts[0] += (self.model(x) - y).pow(2).sum().item()
        parts[1] += len(x)
        dist.all_reduce(parts)
        return (parts[0] / parts[1]).item()


def main(settings):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(4, 1, dtype=torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    evaluator, report = Evaluator(model), Report(settings.steps)
    x = torch.ones(8, 4, dtype=torch.float32) * (rank + 1)
    y = torch.ones(8, 1, dtype=torch.float32)
    for step in range(settings.steps):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if step % settings.every == 1:
            error = evaluator.error(x, y)
            if rank == 0:
                report.show(step, error)
    dist.destroy_process_group()


main(Settings())
