"""A report makes a group of its own once it is written, which rank 0 alone does, after all else.

Ranks: 2
Told: rank 0 alone goes into `if wanted and dist.get_rank() == 0`
Told: fix: create the group of group_of_a_report.py:15 on every rank at one point of the program
"""

import torch
import torch.distributed as dist


class Report:
    def __init__(self):
        self.lines = []
        self.group = dist.new_group(backend="gloo")

    def write(self, words):
        self.lines.append(words)


dist.init_process_group("gloo")
loss = torch.ones(1)
dist.all_reduce(loss)
wanted = True
if wanted and dist.get_rank() == 0:  # cause # right: if wanted:
    Report().write(f"loss {loss.item()}")
dist.destroy_process_group()
