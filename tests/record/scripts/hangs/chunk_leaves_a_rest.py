"""Rows are scattered by torch.chunk, which leaves the last part short.

Ranks: 4
Told: the list is `parts`
Told: `chunk` leaves the last part short
"""

import torch
import torch.distributed as dist


class Deal:
    def __init__(self, rows, width):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.rows, self.width = rows, width

    def load(self):
        torch.manual_seed(0)
        return torch.randn(self.rows, self.width)

    def scatter(self):
        per_rank = -(-self.rows // self.world)
        mine = torch.empty(per_rank, self.width)
        parts = None
        if self.rank == 0:
            rows = self.load()
            parts = list(rows.chunk(self.world))  # cause # right: parts = [mine] * self.world
        dist.scatter(mine, parts, src=0)  # cause
        return mine


def main():
    dist.init_process_group("gloo")
    deal = Deal(rows=10, width=3)
    mine = deal.scatter()
    total = mine.sum()
    dist.all_reduce(total)
    if deal.rank == 0:
        print("sum", total.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
