"""A batch of messages is received in another order than it is sent in.

Ranks: 2
Told: rank 0 sends 768 elements
Told: the messages of two ranks meet in the order in which they are made
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import P2POp

HIDDEN, TOKENS = 32, 6


class Link:
    """Activations of one stage to the next, all in one batch of messages."""

    def __init__(self, rank):
        self.rank = rank

    def push(self, hidden, mask):
        ops = [
            P2POp(dist.isend, hidden.contiguous(), self.rank + 1),
            P2POp(dist.isend, mask, self.rank + 1),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def pull(self):
        mask = torch.empty(4, TOKENS)
        hidden = torch.empty(4, TOKENS, HIDDEN)
        peer = self.rank - 1
        ops = [
            P2POp(dist.irecv, mask, peer),  # cause # right: P2POp(dist.irecv, hidden, peer),
            P2POp(dist.irecv, hidden, peer),  # cause # right: P2POp(dist.irecv, mask, peer),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return hidden, mask


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    link = Link(rank)
    stage = nn.Linear(HIDDEN, HIDDEN)
    for step in range(3):
        if rank == 0:
            x = torch.randn(4, TOKENS, HIDDEN)
            mask = torch.ones(4, TOKENS)
            with torch.no_grad():
                link.push(stage(x), mask)
        else:
            hidden, mask = link.pull()
            out = (stage(hidden) * mask.unsqueeze(-1)).mean()
            print("step", step, float(out), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
