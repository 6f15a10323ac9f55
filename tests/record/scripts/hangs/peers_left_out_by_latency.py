"""Gossip training: each rank averages with a peer in turn; slow peers are left out.

Ranks: 4
Told: `self.alive` is [0, 1, 2, 3] on ranks 0, 1 and 2
"""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Topology:
    rank: int
    world: int
    alive: list = field(default_factory=list)

    def __post_init__(self):
        self.alive = list(range(self.world))

    def leave_out(self, latency: dict[int, float], limit: float):
        slow = {r for r, ms in latency.items() if ms >= limit}
        self.alive = [r for r in self.alive if r not in slow]  # cause  # right: pass

    def partner(self, step: int) -> int | None:
        """Round-robin: ranks that are alive in pairs."""
        place = self.alive.index(self.rank)
        shift = 1 if step % 2 == 0 else len(self.alive) - 1
        other = place ^ 1 if shift == 1 else (place + 2) % len(self.alive)
        if other >= len(self.alive) or other == place:
            return None
        return self.alive[other]


class Gossip:
    def __init__(self, model: nn.Module, topology: Topology):
        self.model, self.topology = model, topology

    def ping(self) -> dict[int, float]:
        took = {}
        for other in range(self.topology.world):
            if other == self.topology.rank:
                continue
            start = time.perf_counter()
            if self.topology.rank == 3 and other == 0:
                time.sleep(0.4)  # a bad link between the machines of 3 and 0
            took[other] = time.perf_counter() - start
        return took

    @torch.no_grad()
    def mix(self, step: int):
        peer = self.topology.partner(step)
        if peer is None:
            return
        mine = nn.utils.parameters_to_vector(self.model.parameters())
        theirs = torch.empty_like(mine)
        ops = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        nn.utils.vector_to_parameters((mine + theirs) / 2, self.model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = nn.Linear(4, 4)
    gossip = Gossip(model, Topology(rank, world))
    dist.barrier()
    gossip.topology.leave_out(gossip.ping(), limit=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(2, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gossip.mix(step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
