"""The last stage takes one more batch, for an evaluation, where its loss is better than before.

Ranks: 2
Told: `if loss < best`
Told: let rank 0 take `if loss < best`
"""

import torch
import torch.distributed as dist


def train(rank, best):
    for step in range(3):
        if rank == 0:
            dist.send(torch.full((4,), 1.0), 1)
        else:
            x = torch.empty(4)
            dist.recv(x, 0)
        loss = 1.0 / (step + 1) if rank else float("inf")
        if loss < best:  # cause  # right: if step == 1:
            best = loss
            header = torch.zeros(2, dtype=torch.int32)
            if rank == 0:
                dist.send(header, 1)
            else:
                dist.recv(header, 0)


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank(), float("inf"))
    dist.destroy_process_group()


main()
