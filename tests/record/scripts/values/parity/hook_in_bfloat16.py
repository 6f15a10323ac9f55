"""A hook of DDP's own sends gradients in bfloat16; its argument is a mistake."""

import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def send_half(divide, bucket):
    flat = bucket.buffer().to(torch.bfloat16)
    if divide:
        flat /= world
    work = dist.all_reduce(flat, async_op=True)

    def widen(future):
        bucket.buffer().copy_(future.value()[0])
        return bucket.buffer()

    return work.get_future().then(widen)


def send_by_torch(divide, bucket):
    return default_hooks.bf16_compress_hook(None, bucket)


torch.manual_seed(14)
model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2)))
if world > 1:
    model.register_comm_hook(how != "sum", send_by_torch if how == "torch" else send_half)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(3):
    rows = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=rows).chunk(world)[rank]
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
dist.destroy_process_group()
