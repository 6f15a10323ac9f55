"""One rank raises an error outside of any call; the others wait for it.

Ranks: 3
Told: KeyError: 'labels'
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
batch = {"rows": torch.ones(3), "labels": torch.ones(3)}
for step in range(3):
    if rank == 1 and step == 2:  # right: if step == 700:
        batch.pop("labels")
    loss = (batch["rows"] - batch["labels"]).sum()  # cause
    dist.all_reduce(loss)
dist.destroy_process_group()
