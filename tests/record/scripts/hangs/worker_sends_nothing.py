"""A server receives from anyone once a worker, and a worker without rows sends nothing.

Ranks: 3
Told: receives from anyone
Told: rank 2 does not go into `if len(rows)`
"""

import torch
import torch.distributed as dist


def serve(world: int, turns: int) -> None:
    for _ in range(turns):
        for _ in range(world - 1):
            dist.recv(torch.empty(4))
        for peer in range(1, world):
            dist.send(torch.ones(4), dst=peer)


def work(batches: list[torch.Tensor]) -> None:
    for rows in batches:
        if len(rows):  # cause  # right: if len(rows) >= 0:
            dist.send(rows.sum(0), dst=0)
        dist.recv(torch.empty(4), src=0)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        serve(world, 3)
    else:
        work([torch.ones(count, 4) for count in ((4, 4, 4) if rank == 1 else (4, 0, 4))])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
