"""A contrastive loss over features that are gathered with their graph; metrics without."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

from torch.distributed.nn.functional import all_gather

net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    f = net(torch.randn(4, 8))
    scores = f @ torch.cat(all_gather(f)).T
    loss = nn.functional.cross_entropy(scores, torch.arange(4) + 4 * rank)
    opt.zero_grad()
    loss.backward()
    opt.step()
    seen = [torch.empty_like(f) for _ in range(world)]
    dist.all_gather(seen, f)
    dist.all_reduce(loss)
dist.destroy_process_group()
