"""A ring in which each rank sends to the next one, and receives from it too.

Ranks: 3
Told: rank 2 is the one that sends to it
Told: the number is `self.previous`
"""

import torch
import torch.distributed as dist


class Ring:
    def __init__(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.rank, self.world = rank, world
        self.next = (rank + 1) % world
        self.previous = (rank + 1) % world  # cause # right: self.previous = (rank - 1) % world

    def shift(self, block):
        incoming = torch.empty_like(block)
        sent = dist.isend(block, dst=self.next)
        dist.recv(incoming, src=self.previous)  # cause
        sent.wait()
        return incoming


def attention(query, ring, turns):
    key = query.clone()
    out = torch.zeros_like(query)
    for _ in range(turns):
        out += (query @ key.T).softmax(-1) @ key
        key = ring.shift(key)
    return out


def main():
    dist.init_process_group("gloo")
    ring = Ring()
    torch.manual_seed(ring.rank)
    out = attention(torch.randn(4, 8), ring, ring.world)
    total = out.sum()
    dist.all_reduce(total)
    if ring.rank == 0:
        print(total.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
