"""Two threads share a group.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn
import threading, time

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def work():
    time.sleep(0.2 if rank == 0 else 0.0)
    dist.all_reduce(torch.ones(3))  # here


t = threading.Thread(target=work)
t.start()
time.sleep(0.0 if rank == 0 else 0.4)
dist.broadcast(torch.ones(4), 0)  # here
t.join()
dist.destroy_process_group()
