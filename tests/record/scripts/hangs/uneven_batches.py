"""Each rank reads its own shard of a data set that does not divide: rank 0 has a batch more.

Ranks: 2
Told: rank 0 4 times, rank 1 3 times
Told: drop_last=True
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def shard(rank: int, world: int) -> TensorDataset:
    rows = torch.randn(7, 4)[rank::world]
    return TensorDataset(rows)  # right: return TensorDataset(rows[:3])


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(shard(rank, world), batch_size=1)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (rows,) in loader:  # cause
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
    seen = torch.tensor([len(loader)])
    dist.all_reduce(seen)
    dist.destroy_process_group()


main()
