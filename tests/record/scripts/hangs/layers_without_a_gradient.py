"""Gradients are averaged parameter by parameter, and a rank has none for a layer.

Ranks: 2
Told: rank 0 passes the gradient of adapter.weight
Told: `if adapt`
"""

import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4, bias=False)
        self.adapter = nn.Linear(4, 4, bias=False)
        self.decoder = nn.Linear(4, 4, bias=False)

    def forward(self, x, adapt):
        h = self.encoder(x)
        if adapt:  # cause # right: if adapt or True:
            h = self.adapter(h)
        return self.decoder(h)


def average(model):
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:  # cause
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.randn(3, 4), adapt=dist.get_rank() == 0).sum().backward()
        average(net)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


main()
