"""Work that is polled, and work whose future is asked for."""

import os, torch
import torch.distributed as dist
from torch import nn
import time

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.ones(4)
w = dist.all_reduce(x, async_op=True)
while not w.is_completed():
    time.sleep(0.001)
f = dist.all_reduce(x, async_op=True).get_future()
f.wait()
f = dist.all_reduce(x, async_op=True).get_future().then(lambda r: r.value()[0] * 2)
f.wait()
dist.destroy_process_group()
