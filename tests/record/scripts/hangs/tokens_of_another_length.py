"""Rank 0 broadcasts a prompt of its own length.

Ranks: 2
Told: if self.rank == 0
"""

import torch
import torch.distributed as dist


class PromptServer:
    MAX = 16

    def __init__(self, group=None):
        self.rank, self.group = dist.get_rank(), group

    def read(self):
        return torch.arange(11)

    def share(self):
        empty = torch.zeros(self.MAX, dtype=torch.long)
        tokens = self.read() if self.rank == 0 else empty  # cause # right: tokens = empty
        dist.broadcast(tokens, src=0, group=self.group)  # cause
        return tokens


def serve(rounds=3):
    server = PromptServer()
    for _ in range(rounds):
        tokens = server.share()
        logits = torch.zeros(4) + tokens.sum()
        dist.all_reduce(logits)


dist.init_process_group("gloo")
serve()
dist.destroy_process_group()
