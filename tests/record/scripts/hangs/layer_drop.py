"""DDP: layers are dropped by a random number of each rank.

Ranks: 2
Told: layers.0.weight
"""

import torch
import torch.distributed as dist
from torch import nn

import random
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self, depth=3, layerdrop=0.5):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(depth)])
        self.layerdrop = layerdrop

    def forward(self, x):
        for layer in self.layers:
            drawn = random.random()
            if self.training and drawn < self.layerdrop:  # cause # right: if drawn < -1:
                continue
            x = x + layer(x)
        return x


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def main():
    dist.init_process_group("gloo")
    seed_everything(1 + dist.get_rank())
    model = DDP(Encoder())
    for _ in range(4):
        x = torch.ones(2, 4, requires_grad=True)
        model(x).sum().backward()
    dist.barrier()
    dist.destroy_process_group()


main()
