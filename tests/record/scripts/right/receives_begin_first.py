"""Every rank begins to receive a number, then sends one: no rank waits before it has sent."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for _ in range(3):
    taken = torch.zeros(1, dtype=torch.int64)
    receive = dist.irecv(taken, (rank - 1) % world)
    dist.isend(torch.tensor([rank]), (rank + 1) % world).wait()
    receive.wait()
    assert taken.item() == (rank - 1) % world

left, right = torch.zeros(1, dtype=torch.int64), torch.tensor([rank])
works = dist.batch_isend_irecv(
    [
        dist.P2POp(dist.irecv, left, (rank - 1) % world),
        dist.P2POp(dist.isend, right, (rank + 1) % world),
    ]
)
for each in works:
    each.wait()
assert left.item() == (rank - 1) % world
dist.destroy_process_group()
