"""Each rank draws its next task with a generator that has no seed, and reduces the head of that task.

Ranks: 3
Told: `module` comes from `sync(model.heads[task])` (task_of_own_generator.py:
Told: and that from `rng = np.random.default_rng()` (task_of_own_generator.py:
"""

import numpy as np
import torch
import torch.distributed as dist

TASKS = {"mnli": 3, "sst2": 2, "stsb": 1, "ag": 4}


class MultiTask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(6, 6)
        self.heads = torch.nn.ModuleDict({k: torch.nn.Linear(6, n) for k, n in TASKS.items()})

    def forward(self, x, task):
        return self.heads[task](torch.relu(self.body(x)))


def task_stream(n):
    rng = np.random.default_rng()  # cause # right: rng = np.random.default_rng(7)
    names = list(TASKS)
    for _ in range(n):
        yield names[rng.integers(len(names))]


def sync(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = MultiTask()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for task in task_stream(12):
        opt.zero_grad()
        model(torch.randn(4, 6), task).square().mean().backward()
        sync(model.body)
        sync(model.heads[task])
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
