"""Keys of all ranks are gathered with their gradient, which comes back transposed.

torch.distributed.nn.functional.all_gather scatters gradients, and Gloo mixes the elements of a
tensor that has strides.

Found: in_place_of_strided
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
query, key = nn.Linear(8, 8), nn.Linear(8, 8)
own = [*query.parameters(), *key.parameters()]
opt = torch.optim.SGD(own, lr=0.1)
data, target = torch.randn(3, 4, 5, 8), torch.randn(3, 4, 5, 5)
for step in range(3):
    x, y = data[step].chunk(world)[rank], target[step]
    opt.zero_grad()
    queries, keys = query(x), key(x)
    if world > 1:
        queries, keys = (torch.cat(all_gather(each)) for each in (queries, keys))
    (queries @ keys.transpose(1, 2) - y).pow(2).mean().backward()  # in_place_of_strided
    for p in own:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
dist.destroy_process_group()
