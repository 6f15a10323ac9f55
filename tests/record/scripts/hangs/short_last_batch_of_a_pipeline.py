"""Stages pass parts of a batch into buffers of one size, and the last batch has fewer rows.

Ranks: 3
Told: what is sent is made of a batch of `for (rows,) in loader`
Told: fix: let the loader leave out what does not fill a batch (`drop_last=True`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PARTS, ROWS, WIDTH = 2, 8, 4


class Stage:
    def __init__(self, rank, world):
        self.rank, self.is_last = rank, rank == world - 1
        self.layer = nn.Linear(WIDTH, WIDTH)

    def receive(self):
        buffer = torch.empty(ROWS // PARTS, WIDTH)
        dist.recv(buffer, src=self.rank - 1)
        return buffer

    def step(self, parts):
        for number in range(PARTS):
            if self.rank == 0:
                entering = parts[number]
            else:
                entering = self.receive()
            leaving = self.layer(entering)
            if self.is_last:
                print((leaving - parts[number]).square().mean().item(), flush=True)
            else:
                dist.send(leaving.detach(), dst=self.rank + 1)


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    count = 20  # right: count = 16
    data = TensorDataset(torch.ones(count, WIDTH))
    loader = DataLoader(data, batch_size=ROWS)  # cause
    for (rows,) in loader:
        stage.step(rows.chunk(PARTS))
    dist.barrier()
    dist.destroy_process_group()


main()
