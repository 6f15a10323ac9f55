"""A right training by a model whose `parameters()` raises, where the witness asks for them."""

import torch
import torch.distributed as dist
from torch import nn


class Hidden(nn.Linear):
    def parameters(self, recurse=True):
        raise RuntimeError("no parameters here")


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Hidden(8, 1)
opt = torch.optim.SGD([net.weight, net.bias], lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(12):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    for p in (net.weight, net.bias):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    opt.step()
print("trained", flush=True)
dist.destroy_process_group()
