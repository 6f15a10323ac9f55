"""A sampler deals to all ranks of the world, and some of them share one layer.

Ranks: 4
Told: `batch[0]`, which `model` is given
Told: `dealt = DistributedSampler(rows)` (rows_of_a_tensor_group.py:
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Documents(Dataset):
    def __init__(self):
        rng = random.Random(3)
        self.lengths = [rng.randint(3, 9) for _ in range(16)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.randn(self.lengths[index], 8)


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = parallelize_module(
        FeedForward(8), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    rows = Documents()
    at = mesh.get_local_rank("dp")
    dealt = DistributedSampler(rows)  # cause # right: dealt = DistributedSampler(rows, 2, at)
    loader = DataLoader(rows, batch_size=1, sampler=dealt)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for batch in loader:
        opt.zero_grad()
        model(batch[0]).pow(2).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad.to_local(), group=mesh.get_group("dp"))
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
