"""Each rank trains another head, and DistributedDataParallel waits for all of them.

Ranks: 2
Told: heads.ner.weight
Told: rank 1 raises the same as rank 0
"""

import torch
import torch.distributed as dist
from torch import nn


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.heads = nn.ModuleDict({"qa": nn.Linear(8, 2), "ner": nn.Linear(8, 5)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))  # cause


def main():
    dist.init_process_group("gloo")
    options = {}  # right: options = {"find_unused_parameters": True}
    model = nn.parallel.DistributedDataParallel(MultiTask(), **options)  # cause
    task = ["qa", "ner"][dist.get_rank()]  # cause
    for _ in range(3):
        model(torch.randn(2, 8), task).sum().backward()
        model.zero_grad()
    dist.destroy_process_group()


main()
