"""The receiver's tag is one ahead of the sender's.

Ranks: 2
Told: rank 0 passes `tag=micro` (tag_of_the_next.py
Told: rank 1 passes `tag=micro + 1` (tag_of_the_next.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
held = torch.zeros(4)
for micro in range(3):
    if dist.get_rank() == 0:
        dist.send(held, 1, None, micro)
    else:
        dist.recv(held, 0, tag=micro + 1)  # cause # right: dist.recv(held, 0, tag=micro)
dist.barrier()
dist.destroy_process_group()
