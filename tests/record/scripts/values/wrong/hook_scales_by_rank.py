"""A hook of DDP's sends gradients as whole numbers, and each rank scales them back by its own.

Found: gradients_differ
Says: though the hook `send_whole` reduces them: what it returns differs between ranks
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def send_whole(state, bucket):
    size = bucket.buffer().abs().max() / 100
    whole = (bucket.buffer() / size).round().int()
    sent = dist.all_reduce(whole, async_op=True)  # gradients_differ
    return sent.get_future().then(lambda done: done.value()[0].float() * size / world)


net = DDP(nn.Linear(8, 4))
net.register_comm_hook(None, send_whole)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
