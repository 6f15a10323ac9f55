"""The thread that prefetches dies of an error, and the rank waits for its queue.

Ranks: 2
Told: has died by ValueError: could not convert string to float: 'bad'
"""

import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
q = queue.Queue(2)


def prefetch(paths):
    for p in paths:
        q.put(torch.full((2,), float(p)))  # cause
    q.put(None)


paths = ["1", "2", "bad"] if rank == 1 else ["1", "2", "3"]  # right: paths = ["1", "2", "3"]
t = threading.Thread(target=prefetch, args=(paths,), daemon=True)
t.start()
while True:
    batch = q.get()  # cause
    if batch is None:
        break
    dist.all_reduce(batch)
dist.destroy_process_group()
