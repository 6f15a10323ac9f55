"""Each rank gathers as many predictions as its last batch has.

Ranks: 2
Told: shape_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
rows = 4 if rank == 0 else 3  # right: rows = 4
predictions = torch.ones(rows, 2)
found = [torch.empty_like(predictions) for _ in range(world)]
dist.all_gather(found, predictions)  # cause
dist.barrier()
dist.destroy_process_group()
