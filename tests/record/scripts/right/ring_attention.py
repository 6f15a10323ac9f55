"""Keys and values that go around a ring in batches of messages."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
k, v = torch.randn(2, 8, 4), torch.randn(2, 8, 4)
for layer in range(2):
    nk, nv = torch.empty_like(k), torch.empty_like(v)
    for step in range(world - 1):
        reqs = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, k, (rank + 1) % world),
                dist.P2POp(dist.isend, v, (rank + 1) % world, tag=1),
                dist.P2POp(dist.irecv, nk, (rank - 1) % world),
                dist.P2POp(dist.irecv, nv, (rank - 1) % world, tag=1),
            ]
        )
        a = (k @ v.transpose(1, 2)).softmax(-1)
        for r in reqs:
            r.wait()
        k, nk = nk, k
        v, nv = nv, v
dist.destroy_process_group()
