"""The pool of a shared buffer is freed by all ranks in `__del__`; on one of them a list still holds it.

Ranks: 2
Told: `if rank == 0`
Told: in `__del__` (del_communicates.py:
Told: fix: let nothing that communicates be called in `__del__`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


class SharedBuffer:
    def __init__(self, size):
        self.data = torch.zeros(size)
        dist.barrier()

    def __del__(self):
        dist.barrier()  # cause


history = []
for step in range(2):
    buffer = SharedBuffer(4)
    buffer.data += rank
    if rank == 0:  # cause  # right: if False:
        history.append(buffer)
    del buffer
    total = torch.ones(3)
    dist.all_reduce(total)
history.clear()
dist.destroy_process_group()
