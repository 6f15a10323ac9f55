"""A loop makes the groups of the data-parallel ranks by their members alone.

Ranks: 4
Told: each rank makes the groups alone that it is in
Told: fix: call `new_group` (groups_by_members.py:
"""

import torch
import torch.distributed as dist
from torch import nn


class ParallelState:
    def __init__(self, tensor_size):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.tensor_size = tensor_size
        self.tensor_group = None
        self.data_group = None

    def initialize(self):
        for start in range(0, self.world, self.tensor_size):
            ranks = list(range(start, start + self.tensor_size))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.tensor_group = group
        for offset in range(self.tensor_size):
            ranks = list(range(offset, self.world, self.tensor_size))
            if self.rank in ranks:  # cause # right: if True:
                group = dist.new_group(ranks)  # right: group = dist.new_group(ranks)
                self.data_group = group if self.rank in ranks else self.data_group
        return self


class ColumnLinear(nn.Module):
    def __init__(self, state, inputs, outputs):
        super().__init__()
        self.state = state
        self.weight = nn.Parameter(torch.randn(outputs // state.tensor_size, inputs) * 0.1)

    def forward(self, x):
        y = x @ self.weight.t()
        total = y.detach().sum()
        dist.all_reduce(total, group=self.state.tensor_group)
        return y


def main():
    dist.init_process_group("gloo")
    state = ParallelState(tensor_size=2).initialize()
    torch.manual_seed(0)
    layer = ColumnLinear(state, 4, 8)
    for _ in range(3):
        layer(torch.randn(2, 4)).pow(2).sum().backward()
        dist.all_reduce(layer.weight.grad, group=state.data_group)
        with torch.no_grad():
            layer.weight -= 0.1 * layer.weight.grad
        layer.weight.grad = None
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
