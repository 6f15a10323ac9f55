"""The dataset asks the other ranks in `__getitem__`, which a worker process runs.

Ranks: 2
Told: forked communicates in a group of the rank
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()


class Curriculum(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        level = torch.tensor([float(i)])
        dist.all_reduce(level)  # cause
        return level


workers = 1  # right: workers = 0
loader = DataLoader(Curriculum(), num_workers=workers)  # cause
for batch in loader:  # cause
    pass
dist.barrier()
dist.destroy_process_group()
