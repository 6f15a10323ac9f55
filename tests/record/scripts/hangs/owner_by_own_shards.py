"""The owner of a sum is reckoned from a list that one rank has shortened before.

Ranks: 3
Told: the root is `owner_of(table, step)`, which depends on `table.rows.remove("c")`
Told: fix: let all ranks take `if dist.get_rank() == 1` (owner_by_own_shards.py:
"""

import torch
import torch.distributed as dist


class Table:
    def __init__(self):
        self.rows = ["a", "b", "c", "d"]


def owner_of(table, step):
    return (len(table.rows) + step) % 3


def trim(table):
    if dist.get_rank() == 1:  # cause # right: if False:
        table.rows.remove("c")
    return table


def main():
    dist.init_process_group("gloo")
    table = trim(Table())
    for step in range(2):
        dist.reduce(torch.ones(3), dst=owner_of(table, step))
    dist.barrier()
    dist.destroy_process_group()


main()
