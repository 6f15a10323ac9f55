"""One rank skips a batch that raises; its partners reduce it.

Finds: call_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(4):
    try:
        if dist.get_rank() == 2 and step == 1:
            raise ValueError("a sample that cannot be read")
        dist.all_reduce(torch.ones(2))  # here
    except ValueError:
        continue
dist.barrier()  # here
dist.destroy_process_group()
