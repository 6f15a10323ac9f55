"""A ring of batches in which rank 2 forgets its send."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x, y = torch.ones(4), torch.empty(4)
ops = [dist.P2POp(dist.irecv, y, (rank - 1) % world)]
if rank != 2:
    ops.append(dist.P2POp(dist.isend, x, (rank + 1) % world))
for r in dist.batch_isend_irecv(ops):  # here
    r.wait()
dist.barrier()
dist.destroy_process_group()
