"""Gradients are averaged where there are any, and one rank has no masks.

Ranks: 2
Told: if p.grad is None
"""

import torch
import torch.distributed as dist
from torch import nn


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 6)
        self.mask_head = nn.Linear(6, 3)
        self.box_head = nn.Linear(6, 5)

    def forward(self, x, has_masks):
        h = self.trunk(x)
        loss = self.box_head(h).sum()
        if has_masks:  # cause
            loss = loss + self.mask_head(h).sum()
        return loss


def average_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        if p.grad is None:  # cause
            continue
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    model = Multi()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        opt.zero_grad()
        has_masks = not (step == 1 and dist.get_rank() == 1)  # right: has_masks = True
        model(torch.ones(2, 4), has_masks).backward()
        average_gradients(model)
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


main()
