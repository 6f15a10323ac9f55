"""A handler of Python's logging gathers warnings of all ranks; one rank warns.

Ranks: 3
Told: rank 1 alone goes into `if norm > 5`
"""

import logging
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()


class Gathered(logging.Handler):
    def emit(self, record):
        lines = [None] * n
        dist.all_gather_object(lines, record.getMessage())  # cause
        if rank == 0:
            print(lines)


log = logging.getLogger("train")
log.setLevel(logging.INFO)
log.addHandler(Gathered())
log.info("start")
norms = [[1.0, 1.2, 1.1], [1.0, 9.5, 1.1], [1.0, 1.0, 1.1]][rank]
for step, norm in enumerate(norms):
    grad = torch.full((4,), norm)
    dist.all_reduce(grad)
    if norm > 5:  # cause  # right: if step == 1:
        log.warning("gradient of %s in step %d", norm, step)  # cause
log.info("end")
dist.destroy_process_group()
