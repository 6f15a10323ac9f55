"""A worker of the loader is killed on one rank (its image needs more memory than there is).

Ranks: 2
Told: DataLoader worker
Told: --shm-size
"""

import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = dist.get_rank()


class Images(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        if rank == 1 and i == 4:
            os.kill(os.getpid(), 9)  # cause  # right: pass
        return torch.ones(2)


total = torch.zeros(2)
for batch in DataLoader(Images(), num_workers=1, batch_size=1):  # cause
    dist.all_reduce(batch)
    total += batch[0]
dist.barrier()
dist.destroy_process_group()
