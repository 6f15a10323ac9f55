"""The receiver counts whole pages alone, the sender sends the rest as well.

Ranks: 2
Told: `self.pages = plan.rows // plan.page` (receives_whole_pages.py:
Told: sets the turns of the first
"""

import dataclasses

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Plan:
    rows: int = 11
    page: int = 4

    def pages(self):
        return -(-self.rows // self.page)


class Sender:
    def __init__(self, plan):
        self.plan = plan

    def run(self):
        rows = torch.arange(self.plan.rows, dtype=torch.float32)
        for start in range(0, self.plan.rows, self.plan.page):
            page = torch.zeros(self.plan.page)
            part = rows[start : start + self.plan.page]
            page[: len(part)] = part
            dist.send(page, dst=1)


class Receiver:
    def __init__(self, plan):
        self.plan = plan
        self.pages = plan.rows // plan.page  # cause # right: self.pages = plan.pages()

    def run(self):
        total = torch.zeros(self.plan.page)
        for _ in range(self.pages):
            page = torch.empty(self.plan.page)
            dist.recv(page, src=0)
            total += page
        return total


def main():
    dist.init_process_group("gloo")
    role = Sender if dist.get_rank() == 0 else Receiver
    role(Plan()).run()
    dist.barrier()
    dist.destroy_process_group()


main()
