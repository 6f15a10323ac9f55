"""The last gradient is sent where some are still missing, and that is never so.

Ranks: 2
Told: rank 1 does not go into `if len(own) < NUMBER`
"""

import torch
import torch.distributed as dist

NUMBER = 4


def run() -> None:
    own: list[float] = []
    kept = None
    for at in range(NUMBER):
        operations = []
        buffer = torch.empty(2)
        if rank == 0:
            operations.append(dist.P2POp(dist.isend, torch.full((2,), float(at)), peer))
            if at:
                operations.append(dist.P2POp(dist.irecv, buffer, peer))
        else:
            operations.append(dist.P2POp(dist.irecv, buffer, peer))
            if kept is not None:
                operations.append(dist.P2POp(dist.isend, kept, peer))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        kept = buffer * 2
        own.append(float(buffer.sum()))
    if rank == 0:
        dist.recv(torch.empty(2), src=peer)
    elif len(own) < NUMBER:  # cause # right: elif own:
        dist.send(kept, dst=peer)


dist.init_process_group("gloo")
rank = dist.get_rank()
peer = 1 - rank
for _ in range(2):
    run()
dist.barrier()
dist.destroy_process_group()
