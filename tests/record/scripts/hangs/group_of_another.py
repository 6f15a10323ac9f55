"""Rank 0 passes the tensor parallel group where the data parallel one is meant.

Ranks: 4
Told: rank 0 passes a group made at
"""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    lanes = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tp, dp = pairs[rank // 2], lanes[rank % 2]
    x = torch.ones(4)
    dist.all_reduce(x, group=tp)
    group = tp if rank == 0 else dp  # right: group = dp
    dist.all_reduce(x, group=group)  # cause
    dist.barrier()
    dist.destroy_process_group()


main()
