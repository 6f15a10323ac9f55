"""A flush within a record takes the lock a second time, on the rank whose buffer is full.

Ranks: 2
Told: for `self.lock`, which it holds itself since lock_not_reentrant.py:
"""

import threading
import torch
import torch.distributed as dist


class Writer:
    def __init__(self, limit):
        self.lock = threading.Lock()
        self.rows, self.limit = [], limit

    def add(self, row):
        with self.lock:  # cause
            self.rows.append(row)
            if len(self.rows) >= self.limit:
                self.flush()  # cause

    def flush(self):
        with self.lock:  # cause
            self.rows.clear()


dist.init_process_group("gloo")
rank = dist.get_rank()
writer = Writer(limit=3 if rank == 0 else 100)  # right: writer = Writer(limit=100)
for step in range(5):
    loss = torch.ones(1)
    dist.all_reduce(loss)
    writer.add(loss.item())
dist.destroy_process_group()
