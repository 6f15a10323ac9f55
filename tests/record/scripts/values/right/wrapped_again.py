"""A body is trained from the third step on, in a new DistributedDataParallel."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(8)
body = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten()
)
net = nn.Sequential(body, nn.Linear(4 * 36, 4))
body.requires_grad_(False)
model = DDP(net)
opt = torch.optim.SGD(net[1].parameters(), lr=0.05)
for epoch in range(3):
    if epoch == 1:
        body.requires_grad_(True)
        model = DDP(net)
        opt.add_param_group({"params": list(body.parameters()), "lr": 0.01})
    for _ in range(2):
        x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 4, (8,))
        x, y = x.chunk(world)[rank], y.chunk(world)[rank]
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
print("done")
dist.destroy_process_group()
