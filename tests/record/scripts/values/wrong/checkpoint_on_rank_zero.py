"""A pretrained checkpoint is loaded by rank 0; nothing sends it to the others.

Found: replicas_differ
"""

import os, tempfile
import torch, torch.distributed as dist
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(x))


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= dist.get_world_size()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(100)
pretrained = Net().state_dict()
torch.manual_seed(0)
model = Net()
if rank == 0:
    model.load_state_dict(pretrained)  # replicas_differ
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.Generator().manual_seed(50)
for step in range(5):
    x = torch.randn(16, 8, generator=data)[rank::world]
    loss = model(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    average_gradients(model)
    opt.step()
dist.destroy_process_group()
