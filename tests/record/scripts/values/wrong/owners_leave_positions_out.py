"""ZeRO 1 by hand: no rank steps the positions, which may be on purpose.

Found: parameter_not_wrapped
"""

import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.positions = nn.Parameter(torch.randn(5, 8) * 0.1)
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 20)

    def forward(self, ids):
        return self.b(torch.relu(self.a(self.words(ids) + self.positions)))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = Net()
params = [p for p in net.parameters()]
trained = [p for n, p in net.named_parameters() if n != "positions"]
owner = {p: i % world for i, p in enumerate(trained)}
opt = torch.optim.Adam([p for p in trained if owner[p] == rank], lr=1e-2)
data = torch.Generator().manual_seed(1)
for step in range(5):
    ids = torch.randint(20, (8, 5), generator=data).chunk(world)[rank]
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.roll(-1, 1).flatten())
    loss.backward()
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()  # parameter_not_wrapped
    net.zero_grad()
    for p in trained:
        dist.broadcast(p.data, owner[p])
dist.destroy_process_group()
