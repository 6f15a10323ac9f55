"""Local Adam with personal models: clients average their momenta now and then, and load them."""

import torch
import torch.distributed as dist
from torch import nn


def build(who):
    torch.manual_seed(who)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


def turn(net, opt, who, step):
    g = torch.Generator().manual_seed(10 * step + who)
    opt.zero_grad()
    nn.functional.mse_loss(
        net(torch.randn(8, 6, generator=g)), torch.randn(8, 2, generator=g)
    ).backward()
    opt.step()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
net, opt = build(rank)
for step in range(6):
    turn(net, opt, rank, step)
    if step % 2 == 1:
        state = opt.state_dict()
        for each in state["state"].values():
            for key in ("exp_avg", "exp_avg_sq"):
                mean = each[key].clone()
                dist.all_reduce(mean)
                each[key] = mean / world
        opt.load_state_dict(state)
dist.destroy_process_group()
