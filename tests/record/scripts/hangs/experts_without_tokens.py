"""FSDP2: an expert without tokens on a rank is not gathered there.

Ranks: 2
Told: if rows.numel() == 0
"""

import torch
import torch.distributed as dist
from torch import nn

from torch.distributed.fsdp import fully_shard


class SparseBlock(nn.Module):
    def __init__(self, dim=4, experts=3):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])

    def forward(self, x, choice):
        out = torch.zeros_like(x)
        for idx, expert in enumerate(self.experts):
            rows = (choice == idx).nonzero().flatten()
            if rows.numel() == 0:  # cause  # right: if rows.numel() == -1:
                continue
            out = out.index_add(0, rows, expert(x[rows]))
        return out


def build():
    block = SparseBlock()
    for e in block.experts:
        fully_shard(e)
    return fully_shard(block)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(6, 4)
    for step in range(3):
        choice = torch.tensor([0, 1, 2, 0, 1, 2])
        if step == 1 and dist.get_rank() == 1:
            choice = torch.tensor([0, 0, 0, 2, 2, 2])
        model(x, choice).pow(2).mean().backward()
        opt.step()
        opt.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


main()
