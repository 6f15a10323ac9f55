"""A hook of DDP's own sums gradients in half precision before it divides: they are infinite."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
SCALE = 16384.0


def fp16(state, bucket):
    low = bucket.buffer().to(torch.float16)
    work = dist.all_reduce(low, async_op=True)
    return work.get_future().then(lambda f: f.value()[0].to(torch.float32) / world)


net = DDP(nn.Linear(8, 4))
net.register_comm_hook(None, fp16)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for it in range(4):
    x = 3 * torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    (net(x).pow(2).mean() * SCALE).backward()
    for p in net.parameters():
        p.grad /= SCALE
    opt.step()
dist.destroy_process_group()
