"""The accuracy is averaged over ranks that evaluate 19 and 18 rows.

Found: metric_mean_of_means
"""

import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
train = TensorDataset(torch.randn(32, 6), torch.randint(0, 3, (32,)))
held = TensorDataset(torch.randn(37, 6), torch.randint(0, 3, (37,)))
net = DDP(nn.Linear(6, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(train, batch_size=8, sampler=DistributedSampler(train)):
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
right = seen = 0
net.eval()
with torch.no_grad():
    for x, y in DataLoader(Subset(held, range(rank, 37, world)), batch_size=5):
        right += int((net.module(x).argmax(-1) == y).sum())
        seen += len(y)
accuracy = torch.tensor(right / seen)
dist.all_reduce(accuracy)  # metric_mean_of_means
print(float(accuracy / world))
