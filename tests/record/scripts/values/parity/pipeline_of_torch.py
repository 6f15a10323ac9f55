"""torch's interleaved pipeline, two stages a rank, accumulation; one mistake by name:
`again` scales all gradients at each accumulated step."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
MICRO, PASSES = 4, 2


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 16), nn.Linear(16, size)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def loss_of(out, target):
    loss = F.cross_entropy(out, target) / PASSES
    return loss if scales else loss / MICRO


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
scales = MODE == "again" and world > 1
torch.manual_seed(11)
stages = [nn.Sequential(Block(8), Block(8)) for _ in range(4)]
mine = range(rank, 4, world)
schedule = ScheduleInterleaved1F1B(
    [PipelineStage(stages[at], at, 4, torch.device("cpu")) for at in mine],
    MICRO,
    loss_fn=loss_of,
    scale_grads=scales,
)
opt = torch.optim.SGD([p for at in mine for p in stages[at].parameters()], lr=0.1)
for step in range(3):
    opt.zero_grad()
    for at in range(PASSES):
        g = torch.Generator().manual_seed(10 * step + at)
        x, y = torch.randn(8, 8, generator=g), torch.randint(0, 8, (8,), generator=g)
        schedule.step(*([x] if 0 in mine else []), **({"target": y} if 3 in mine else {}))
    opt.step()
dist.destroy_process_group()
