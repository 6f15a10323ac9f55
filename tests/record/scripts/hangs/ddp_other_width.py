"""The model is as wide as the rank's own vocabulary.

Ranks: 2
Told: embed.weight
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
vocabulary = sorted({f"word{i}" for i in range(10 + rank)})  # right: vocabulary = range(10)


class Model(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(x))


model = DDP(Model(len(vocabulary)))  # cause
model(torch.tensor([1, 2])).sum().backward()
dist.destroy_process_group()
