"""The next rank of a group's ring is named by its place in the group, and is the rank itself.

Ranks: 4
Told: `return (self.place + 1) % count` (peer_by_place_in_group.py:
Told: `dist.get_global_rank(group,
"""

import torch
import torch.distributed as dist


class Ring:
    def __init__(self, groups):
        for members in groups:
            group = dist.new_group(members)
            if dist.get_rank() in members:
                self.members, self.group = members, group
        self.place = self.members.index(dist.get_rank())

    def after(self):
        count = len(self.members)
        return (self.place + 1) % count  # cause # right: return self.members[1 - self.place]

    def turn(self, x):
        received = torch.empty_like(x)
        work = dist.isend(x, self.after())
        dist.recv(received, self.after())
        work.wait()
        return received


def main():
    dist.init_process_group("gloo")
    ring = Ring([[0, 3], [1, 2]])
    ring.turn(torch.ones(3))
    dist.barrier()
    dist.destroy_process_group()


main()
