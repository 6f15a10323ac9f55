"""A router without tokens does not take part in the exchange.

Ranks: 3
Told: if tokens.numel() == 0
"""

import torch
import torch.distributed as dist


class Router:
    def __init__(self, group=None):
        self.world = dist.get_world_size(group)

    def dispatch(self, tokens, dest):
        if tokens.numel() == 0:  # cause  # right: if tokens.dim() == 0:
            return tokens
        counts = torch.bincount(dest, minlength=self.world)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        out = tokens.new_empty(int(theirs.sum()), tokens.size(1))
        dist.all_to_all_single(out, tokens, theirs.tolist(), counts.tolist())
        return out


def layer(rank, router, step):
    n = 0 if (rank, step) == (1, 2) else 3
    tokens = torch.ones(n, 2)
    dest = torch.arange(n) % router.world
    return router.dispatch(tokens, dest)


dist.init_process_group("gloo")
router = Router()
for step in range(4):
    layer(dist.get_rank(), router, step)
dist.barrier()
dist.destroy_process_group()
