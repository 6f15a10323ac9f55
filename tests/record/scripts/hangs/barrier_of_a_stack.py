"""An `ExitStack` is given a barrier by the ranks that own a file alone.

Ranks: 3
Told: ranks 0 and 2 alone register `barrier` by `stack.callback(dist.barrier)`
Told: fix: register `barrier` on every rank
"""

import contextlib

import torch
import torch.distributed as dist


def open_shard(stack, index):
    if index % 2 == 0:  # cause
        stack.callback(dist.barrier)  # right: pass
    return f"shard-{index}"


def export():
    with contextlib.ExitStack() as stack:
        name = open_shard(stack, dist.get_rank())
        norm = torch.ones(1)
        dist.all_reduce(norm)
    return name, norm


def main():
    dist.init_process_group("gloo")
    _, norm = export()
    lengths = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, norm)
    dist.destroy_process_group()


main()
