"""A server receives one message of each worker, from anyone; the others leave without it.

Ranks: 3
Told: receives from anyone
Told: rank 2 does not go into `if rows > 0`
"""

import torch
import torch.distributed as dist

ROWS = {1: 3, 2: 0}


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        total = torch.zeros(2)
        for _ in range(world - 1):
            part = torch.empty(2)
            dist.recv(part)
            total += part
    else:
        rows = ROWS[rank]
        if rows > 0:  # cause  # right: if rows >= 0:
            dist.send(torch.full((2,), float(rows)), dst=0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
