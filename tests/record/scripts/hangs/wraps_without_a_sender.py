"""A ring of attention in which the last rank does not send.

Ranks: 3
Told: where it would send
"""

import torch
import torch.distributed as dist

from torch.distributed import P2POp, batch_isend_irecv


class RingAttention:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def rotate(self, kv, causal):
        received = torch.empty_like(kv)
        ops = [P2POp(dist.irecv, received, (self.rank - 1) % self.world)]
        if not causal or self.rank < self.world - 1:  # cause  # right: if True:
            ops.append(P2POp(dist.isend, kv, (self.rank + 1) % self.world))
        for work in batch_isend_irecv(ops):
            work.wait()
        return received


dist.init_process_group("gloo")
attention = RingAttention()
kv = torch.ones(2, 2)
for hop in range(attention.world - 1):
    kv = attention.rotate(kv, causal=True)
dist.barrier()
dist.destroy_process_group()
