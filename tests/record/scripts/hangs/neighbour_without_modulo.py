"""The last rank sends to a neighbour that does not exist.

Ranks: 3
Told: rank 2 sends to rank 3
Told: receives from rank -1
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
x = torch.ones(4)
left, right = rank - 1, rank + 1  # right: left, right = (rank - 1) % n, (rank + 1) % n
ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.empty(4), left)]  # cause
for w in dist.batch_isend_irecv(ops):  # cause
    w.wait()
dist.destroy_process_group()
