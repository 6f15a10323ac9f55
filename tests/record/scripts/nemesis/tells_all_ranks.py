"""An error of one rank is caught, and its words are gathered from all ranks: those never come."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(2):
    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError as error:
        words = [None] * dist.get_world_size()
        dist.all_gather_object(words, str(error))
        print(words)
dist.barrier()
dist.destroy_process_group()
