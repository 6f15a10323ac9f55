"""A sampler of the script's own deals the rest to the first ranks, and pads nothing.

Ranks: 3
Told: which depends on `self.indices = indices[self.rank :: self.replicas]`
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, TensorDataset


class EvalSampler(Sampler):
    def __init__(self, data):
        self.replicas, self.rank = dist.get_world_size(), dist.get_rank()
        indices = list(range(len(data)))  # right: indices = list(range(9))
        self.indices = indices[self.rank :: self.replicas]  # cause

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.arange(10.0))
    loader = DataLoader(data, batch_size=1, sampler=EvalSampler(data))
    for (row,) in loader:
        score = row.mean()
        dist.all_reduce(score)
    dist.barrier()
    dist.destroy_process_group()


main()
