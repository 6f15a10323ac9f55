"""Each rank reduces the metrics that it has; a rank without a class has fewer.

Ranks: 2
Told: for name in sorted(metrics)
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = {"loss": 1.0, "accuracy": 0.5}
if rank == 0:  # right: if True:
    metrics["accuracy/cats"] = 0.25


def reduce_metrics() -> dict[str, float]:
    found = {}
    for name in sorted(metrics):  # cause
        value = torch.tensor([metrics[name]])
        dist.all_reduce(value)
        found[name] = value.item()
    return found


reduce_metrics()
x = torch.ones(5)
dist.all_reduce(x)
dist.destroy_process_group()
