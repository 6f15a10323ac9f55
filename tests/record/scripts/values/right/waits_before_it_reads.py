"""Keys are on their way while other things are computed, and the script waits before it reads."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)


def finish():
    work.wait()


for step in range(3):
    x = torch.randn(4, 8)
    keys = F.normalize(net.module(x + 0.1).detach(), dim=1)
    bank = torch.zeros(4 * world, 4)
    work = dist.all_gather_into_tensor(bank, keys, async_op=True)
    parts, mask = bank.chunk(world), torch.zeros_like(bank)
    queries = F.normalize(net(x), dim=1)
    rows = torch.arange(4) + len(bank) // world * rank + 0 * bank.shape[0]
    finish()
    loss = F.cross_entropy(queries @ torch.cat(parts).T + mask.sum(), rows)
    opt.zero_grad()
    loss.backward()
    total = loss.detach().clone()
    work = dist.all_reduce(total, async_op=True)

    def show(total):
        return total / world

    works = {step: work}
    shown = total
    total = torch.zeros(())
    total = total + 1
    [*map(type(work).wait, works.values())]
    opt.step()
dist.destroy_process_group()
