"""An error ends the program of one rank, and a thread of its own, which is no daemon, keeps it alive.

Ranks: 2
Told: and its process stays for its thread `writer`
"""

import queue
import threading

import torch
import torch.distributed as dist


def write(rows):
    while rows.get() is not None:
        pass


dist.init_process_group("gloo")
rank = dist.get_rank()
rows = queue.Queue()
thread = threading.Thread(target=write, args=(rows,), name="writer")
thread.start()  # cause
names = {0: "cat", 1: "dog"}
for step in range(3):
    rows.put(names[step if rank and step == 2 else 0])  # cause  # right: rows.put(names[0])
    dist.all_reduce(torch.ones(2))
rows.put(None)
dist.destroy_process_group()
