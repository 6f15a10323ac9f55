"""A hook that halves gradients is registered where the device can, which one rank's cannot.

Ranks: 2
Told: `if CAPABLE[dist.get_rank()]`
Told: fix: let all ranks take `if CAPABLE[dist.get_rank()]`
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

CAPABLE = [True, False]  # right: CAPABLE = [True, True]


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    if CAPABLE[dist.get_rank()]:  # cause
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model(torch.ones(2, 2)).sum().backward()
    dist.destroy_process_group()


main()
