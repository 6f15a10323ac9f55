"""Calls that Python makes of a group on Gloo, with a signal whose handler makes tensors all the time."""

import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def handler(*_):
    assert torch.zeros(3).sum() == 0


signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)

weight = torch.nn.Parameter(torch.ones(3))
for _ in range(60):
    x = torch.full((2, 2), rank)
    dist.all_reduce(x)
    assert x.eq(sum(range(world))).all()
    x = torch.full((4,), rank)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    assert x.eq(world - 1).all()
    work = dist.all_reduce(x[::2].contiguous(), async_op=True)
    work.wait()
    x = torch.full((3,), float(rank))
    dist.broadcast(x, src=1)
    assert x.eq(1).all()
    with torch.no_grad():
        dist.broadcast(weight, src=0)
    assert weight.eq(1).all()
    x = torch.full((3,), rank)
    dist.reduce(x, dst=0)
    assert rank or x.eq(sum(range(world))).all()
    sent, taken = torch.full((5,), rank), torch.zeros(5, dtype=torch.int64)
    if rank % 2:
        dist.send(sent, rank - 1)
        dist.recv(taken, rank - 1)
    else:
        dist.recv(taken, rank + 1)
        dist.send(sent, rank + 1)
    assert taken.eq(rank ^ 1).all()
    handles = [dist.irecv(taken, rank ^ 1), dist.isend(sent, rank ^ 1)]
    for each in handles:
        each.wait()

signal.setitimer(signal.ITIMER_REAL, 0)
dist.destroy_process_group()
