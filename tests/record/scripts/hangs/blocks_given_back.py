"""Prefill with tensor-parallel ranks: transfers are looked at where no request fits.

Ranks: 2
Told: under `if dist.get_rank() == 0 and self.sent`
"""

from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Request:
    number: int
    tokens: int


class BlockPool:
    def __init__(self, blocks, block_size=16):
        self.free = blocks
        self.block_size = block_size

    def blocks_of(self, request):
        return -(-request.tokens // self.block_size)

    def take(self, request):
        need = self.blocks_of(request)
        if need > self.free:
            return False
        self.free -= need
        return True

    def give_back(self, request):
        self.free += self.blocks_of(request)


class Executor:
    def __init__(self, pool, requests):
        self.pool = pool
        self.waiting = deque(requests)
        self.sent = deque()

    def fitting(self):
        free = self.pool.free
        count = 0
        for request in self.waiting:
            free -= self.pool.blocks_of(request)
            if free < 0:
                break
            count += 1
        return count

    def check_transfers(self):
        done = torch.tensor([len(self.sent)])
        parts = [torch.zeros_like(done) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, done)
        for _ in range(int(min(parts))):
            self.pool.give_back(self.sent.popleft())

    def forward(self, batch):
        out = torch.full((len(batch), 4), 1.0)
        dist.all_reduce(out.sum(0))
        return out

    def poll_completed(self):
        """Give back what this rank has sent already, as soon as its own link is done."""
        if dist.get_rank() == 0 and self.sent:  # right: if False:
            self.pool.give_back(self.sent.popleft())  # cause

    def step(self):
        fitting = self.fitting()
        if fitting == 0:  # cause
            self.check_transfers()
            return 0
        batch = [self.waiting.popleft()]
        for request in batch:
            assert self.pool.take(request)
        self.forward(batch)
        self.sent.extend(batch)
        self.poll_completed()
        return len(batch)


def main():
    dist.init_process_group("gloo")
    executor = Executor(BlockPool(6), [Request(i, 40) for i in range(6)])
    steps = 0
    while executor.waiting and steps < 20:
        executor.step()
        steps += 1
    dist.barrier()
    dist.destroy_process_group()


main()
