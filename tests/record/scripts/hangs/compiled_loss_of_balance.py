"""A compiled model with a balance loss for long batches.

Ranks: 2
Told: each rank compiles its own way through `if x.size(1) > self.limit`
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn


class Router(nn.Module):
    def __init__(self, dim, experts, limit):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.limit = limit

    def balance(self, probs):
        load = probs.mean(dim=(0, 1))
        return funcol.all_reduce(load, "sum", dist.group.WORLD) / dist.get_world_size()

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        if x.size(1) > self.limit:  # cause  # right: if True:
            load = self.balance(probs)
            return probs, load.square().sum()
        return probs, probs.new_zeros(())


def lengths(rank):
    return [4, 4, 12] if rank == 0 else [4, 4, 6]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    router = Router(8, 4, limit=8)
    fast = torch.compile(router, backend="aot_eager", dynamic=False)
    for step, length in enumerate(lengths(rank)):
        with torch.no_grad():
            probs, aux = fast(torch.randn(2, length, 8))
        loss = probs.mean() + aux
        dist.all_reduce(loss)
        if rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
