"""Prompts are parted for the ranks, and one more goes to rank 0; each turn gathers what is done.

Ranks: 2
Told: `split_between_processes` (prompts_of_other_lengths.py:27) parts what does not divide
Told: pass `apply_padding=True`
"""

from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def split_between_processes(items: list[str], apply_padding: bool = False):
    rank, world = dist.get_rank(), dist.get_world_size()
    part = items[rank::world]
    if apply_padding:
        part += part[-1:] * (-(-len(items) // world) - len(part))
    yield part


dist.init_process_group("gloo")


def answer(prompts: list[str]) -> None:
    with split_between_processes(prompts) as own:
        for prompt in own:  # cause
            done = [torch.zeros(1) for _ in range(2)]
            dist.all_gather(done, torch.tensor([float(len(prompt))]))


answer(["one", "two", "three", "four", "five"])  # right: answer(["one", "two"])
total = torch.zeros(3)
dist.all_reduce(total)
dist.destroy_process_group()
