"""The tokens that a rank sends are not those that the other one expects.

Ranks: 2
Told: output_split_sizes
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
counts = [3, 1] if rank == 0 else [2, 2]
expected = [3, 1] if rank == 0 else [1, 2]  # right: expected = [3, 2] if rank == 0 else [1, 2]
tokens = torch.ones(sum(counts), 4)
arrived = torch.empty(sum(expected), 4)
dist.all_to_all_single(arrived, tokens, expected, counts)  # cause
dist.barrier()
dist.destroy_process_group()
