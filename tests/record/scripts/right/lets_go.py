"""No tensor stays alive after its wait, however it was waited for."""

import time
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def at_once(x):
    dist.all_reduce(x)


def by_its_work(x):
    dist.all_reduce(x, async_op=True).wait()


def by_its_future(x):
    work = dist.all_reduce(x, async_op=True)
    work.get_future().wait()
    work.wait()


def as_a_function(x):
    functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))


def as_messages(x):
    taken = torch.empty_like(x)
    there, back = (dist.get_rank() + 1) % world, (dist.get_rank() - 1) % world
    for work in [dist.irecv(taken, back), dist.isend(x, there)]:
        work.wait()


def as_gradients(x):
    net(x).sum().backward()


dist.init_process_group("gloo")
world = dist.get_world_size()
net = DistributedDataParallel(nn.Linear(4, 4))
for way in (at_once, by_its_work, by_its_future, as_a_function, as_messages, as_gradients):
    tensor = torch.ones(4)
    seen = weakref.ref(tensor)
    way(tensor)
    del tensor
    for _ in range(200):  # a thread of the backend drops its own in a moment
        if seen() is None:
            break
        time.sleep(0.05)
    assert seen() is None, f"{way.__name__} keeps its tensor"
    dist.barrier()
dist.destroy_process_group()
