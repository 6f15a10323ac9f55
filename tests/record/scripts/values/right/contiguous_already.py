"""What is reduced is made contiguous, which it is already: the tensor itself is reduced."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def average(tensor):
    dist.all_reduce(tensor.contiguous())
    return tensor.div_(world)


torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(3):
    net(torch.randn(8, 4)).pow(2).mean().backward()
    for p in net.parameters():
        p.grad = average(p.grad)
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
