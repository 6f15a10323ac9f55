"""A worker of one rank's loader raises: the file of a sample is not there.

Ranks: 2
Told: rank 1 raises FileNotFoundError: [Errno 2] No such file or directory
Told: (Caught FileNotFoundError in DataLoader worker process 0)
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 6

    def __getitem__(self, at):
        name = "/nowhere" if self.rank and at == 3 else "/dev/null"  # right: name = "/dev/null"
        with open(name, "rb"):  # cause
            return torch.ones(3)


dist.init_process_group("gloo")
for batch in DataLoader(Images(dist.get_rank()), batch_size=2, num_workers=1):
    dist.all_reduce(batch)
dist.destroy_process_group()
