"""Two groups are reduced in the order of what each rank has waiting for them.

Ranks: 4
Told: the loop `for axis, rows in self.pending()` (groups_by_own_queue.py:
Told: goes in another order on some ranks: `return sorted(rows, key=waiting)`
Told: fix: let the loop at groups_by_own_queue.py:
"""

import torch
import torch.distributed as dist


class Exchange:
    """Rows that wait for the ranks of a row, and for those of a column."""

    def __init__(self, rank):
        self.groups = {}
        for axis, parts in {"row": ([0, 1], [2, 3]), "column": ([0, 2], [1, 3])}.items():
            for part in parts:
                group = dist.new_group(part)
                if rank in part:
                    self.groups[axis] = group
        self.queue = {"row": [], "column": []}

    def put(self, axis, value):
        self.queue[axis].append(value)

    def pending(self):
        def waiting(each):
            return -len(each[1])

        rows = self.queue.items()
        return sorted(rows, key=waiting)  # cause # right: return sorted(rows)

    def flush(self):
        total = torch.zeros(2)
        for axis, rows in self.pending():
            value = torch.zeros(2) + sum(rows)
            dist.all_reduce(value, group=self.groups[axis])
            total += value
            rows.clear()
        return total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    exchange = Exchange(rank)
    for _ in range(2):
        exchange.put("row", 1.0)
        exchange.put("column", 2.0)
        if rank in (1, 2):
            exchange.put("column", 3.0)
        else:
            exchange.put("row", 3.0)
        exchange.flush()
    dist.destroy_process_group()


main()
