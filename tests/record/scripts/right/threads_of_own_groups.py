"""Two threads, each with a group of its own."""

import os, torch
import torch.distributed as dist
from torch import nn
import threading

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

gs = [dist.new_group(), dist.new_group()]


def work(k):
    for i in range(3):
        dist.all_reduce(torch.ones(2 + k), group=gs[k])


ts = [threading.Thread(target=work, args=(k,)) for k in range(2)]
[t.start() for t in ts]
[t.join() for t in ts]
dist.barrier()
dist.destroy_process_group()
