"""DDP: rank 0 alone validates with the wrapped model, which broadcasts its buffers.

Ranks: 2
Told: if is_master()
"""

import torch
import torch.distributed as dist
from torch import nn

from torch.nn.parallel import DistributedDataParallel as DDP


def is_master():
    return not dist.is_initialized() or dist.get_rank() == 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.body(x)


def validate(model, data):
    correct = 0
    with torch.no_grad():
        for x in data:
            correct += int(model(x).argmax(-1).sum())
    return correct


def fit(epochs):
    model = DDP(Net())
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(epochs):
        model.train()
        for _ in range(2):
            model(torch.randn(4, 4)).sum().backward()
            opt.step()
            opt.zero_grad()
        if is_master():  # cause  # right: if epoch >= 0:
            acc = validate(model, [torch.randn(4, 4)])
            print("accuracy", acc)


dist.init_process_group("gloo")
fit(3)
dist.destroy_process_group()
