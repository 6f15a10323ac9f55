"""1F1B by hand: the first stage receives a gradient too many in its cooldown.

Ranks: 3
Told: rank 0 3 times, rank 1 once
"""

import torch
import torch.distributed as dist


class Stage:
    def __init__(self, micro_batches: int) -> None:
        self.rank, self.stages = dist.get_rank(), dist.get_world_size()
        self.micro_batches = micro_batches
        self.sending: list[dist.Work] = []

    @property
    def warmup(self) -> int:
        return min(self.stages - self.rank - 1, self.micro_batches)

    def forward(self) -> None:
        x = torch.zeros(4)
        if self.rank > 0:
            dist.recv(x, self.rank - 1)
        if self.rank < self.stages - 1:
            self.sending.append(dist.isend(x + 1, self.rank + 1))

    def backward(self) -> None:
        g = torch.zeros(4)
        if self.rank < self.stages - 1:
            dist.recv(g, self.rank + 1)
        if self.rank > 0:
            self.sending.append(dist.isend(g, self.rank - 1))

    def run(self) -> None:
        for _ in range(self.warmup):
            self.forward()
        for _ in range(self.micro_batches - self.warmup):
            self.forward()
            self.backward()
        left = self.warmup + (self.rank == 0)  # cause # right: left = self.warmup
        for _ in range(left):  # cause
            self.backward()
        for work in self.sending:
            work.wait()


dist.init_process_group("gloo")
Stage(micro_batches=4).run()
dist.barrier()
dist.destroy_process_group()
