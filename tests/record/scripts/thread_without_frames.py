"""A call from a thread that has no line of Python, as torch's engine has on a device."""

import _thread
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((4,), float(dist.get_rank()))
group = dist.group.WORLD
assert group is not None
call = torch.ops.c10d.broadcast_.default._op
_thread.start_new_thread(call, ([x], group.boxed(), 1, 0, False, 10_000))
until = time.monotonic() + 20
while x[0] != 1 and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
dist.barrier()
assert x[0] == 1, x
dist.destroy_process_group()
