"""A conditional expression reduces the loss only where a rank has labels.

Ranks: 3
Told: ranks 0 and 1 alone go into `if labels`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def mean(x):
    total = x.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


for step in range(3):
    labels = [1, 2][: 0 if (step, rank) == (1, 2) else 2]
    loss = torch.tensor([0.5])
    shown = mean(loss) if labels else loss  # cause  # right: shown = mean(loss)
    print(step, shown.item())
dist.barrier()
dist.destroy_process_group()
