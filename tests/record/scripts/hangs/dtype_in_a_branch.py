"""The total of rank 0 is made with another dtype than that of the others.

Ranks: 2
Told: dtype_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    total = torch.zeros(2, dtype=torch.float64)  # cause # right: total = torch.zeros(2)
else:
    total = torch.zeros(2)
total[1] += 1
dist.all_reduce(total)
dist.destroy_process_group()
