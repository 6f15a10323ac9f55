"""DDP: a layer that is used twice is recomputed by a reentrant checkpoint.

Ranks: 2
Told: runs its part of the model again
Told: use_reentrant=False
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Universal(nn.Module):
    """One block that is applied several times."""

    def __init__(self, turns=2):
        super().__init__()
        self.turns = turns
        self.embed = nn.Linear(4, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.embed(x)
        for _ in range(self.turns):
            x = checkpoint(self.block, x, use_reentrant=True)  # cause # right: x = self.block(x)
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Universal())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        loss = model(torch.randn(4, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
