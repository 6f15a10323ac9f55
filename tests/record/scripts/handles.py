"""Four asynchronous reductions, then four waits, three times."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensors = [torch.ones(4) for _ in range(4)]
for turn in range(3):
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for work in works:
        work.wait()
dist.destroy_process_group()
