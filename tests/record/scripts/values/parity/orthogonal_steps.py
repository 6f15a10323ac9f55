"""An optimizer that makes momentum orthogonal; each rank keeps some rows of it.

Mistake `part`: each rank makes its rows orthogonal, in place of the whole matrix.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        x = 1.5 * x - 0.5 * x @ x.T @ x
    return x


class Orthogonal(torch.optim.Optimizer):
    def __init__(self, weights: list[nn.Parameter]) -> None:
        super().__init__(weights, {"lr": 0.05})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                rows = weight.grad.chunk(world)[rank].contiguous()
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(rows))
                momentum.mul_(0.9).add_(rows)
                parts = [torch.empty_like(rows) for _ in range(world)]
                part = orthogonalise(momentum) if MISTAKE == "part" else momentum
                dist.all_gather(parts, part.contiguous())
                whole = torch.cat(parts)
                if MISTAKE != "part":
                    whole = orthogonalise(whole)
                weight.sub_(whole, alpha=group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.SiLU(), nn.Linear(16, 4, bias=False))
opt = Orthogonal([*model.parameters()])
draw = torch.Generator().manual_seed(1)
for _ in range(4):
    x, y = torch.randn(16, 8, generator=draw), torch.randint(0, 4, (16,), generator=draw)
    loss = nn.functional.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank])
    opt.zero_grad()
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
        weight.grad /= world
    opt.step()
dist.destroy_process_group()
