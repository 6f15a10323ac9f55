"""The kind of a batch chooses the loss, by match, and one kind's loss communicates.

Ranks: 2
Told: rank 0 alone goes into `case "contrast"`
Told: kind = 'contrast' on rank 0
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
plans = [["caption", "contrast", "caption"], ["caption", "caption", "contrast"]]
kinds = plans[rank]  # right: kinds = plans[0]
for step, kind in enumerate(kinds):
    features = torch.ones(2, 3)
    match kind:  # cause
        case "contrast":  # cause
            parts = [torch.zeros(2, 3) for _ in range(2)]
            dist.all_gather(parts, features)
        case "caption":
            loss = features.sum()
    grad = torch.ones(5)
    dist.all_reduce(grad)
dist.destroy_process_group()
