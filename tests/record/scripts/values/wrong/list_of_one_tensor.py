"""The list for all_gather holds one tensor many times, so that all parts are the last rank's.

Found: result_dropped
"""

import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.nn.functional as F


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(10, 6), nn.Linear(12, 6)

    def forward(self, a, b):
        return F.normalize(self.image(a), dim=1), F.normalize(self.text(b), dim=1)


def gather_with_own(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [torch.zeros_like(x)] * world
    dist.all_gather(parts, x.detach().contiguous())  # result_dropped
    parts = parts[:rank] + [x] + parts[rank + 1 :]
    return torch.cat(parts)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(Features())
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    a, b = torch.randn(16, 10), torch.randn(16, 12)
    u, v = net(a.chunk(world)[rank], b.chunk(world)[rank])
    U, V = gather_with_own(u), gather_with_own(v)
    logits = U @ V.t() / 0.1
    loss = F.cross_entropy(logits, torch.arange(len(U)))
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
