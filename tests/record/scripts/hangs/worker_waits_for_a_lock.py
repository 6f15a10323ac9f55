"""A worker of the loader is forked while a thread holds the lock that the worker needs.

Ranks: 2
Told: for a worker of its DataLoader
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()


class Images(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        with lock:
            return torch.ones(2)


def hold(seconds):
    with lock:
        time.sleep(seconds)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        threading.Thread(target=hold, args=(600,), daemon=True).start()  # right: pass
        time.sleep(0.2)
    loader = DataLoader(Images(), batch_size=2, num_workers=1)
    for batch in loader:  # cause
        dist.all_reduce(batch)
    dist.destroy_process_group()
