"""A hook of DDP's own sends gradients as whole numbers of one size; its argument is a mistake."""

import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def send_whole(state, bucket):
    size = bucket.buffer().abs().max() / 100
    if how != "own":
        dist.all_reduce(size, op=dist.ReduceOp.MAX)
    whole = (bucket.buffer() / size).round().to(torch.int32)
    parts = 1 if how == "sum" else world
    work = dist.all_reduce(whole, async_op=True)
    return work.get_future().then(lambda done: done.value()[0].float() * size / parts)


torch.manual_seed(14)
model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2)))
if world > 1:
    model.register_comm_hook(None, send_whole)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(3):
    rows = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=rows).chunk(world)[rank]
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
dist.destroy_process_group()
