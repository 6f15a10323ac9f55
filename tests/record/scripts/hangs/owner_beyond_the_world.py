"""Parameters are dealt to as many owners as there are ranks, and the rest to one that does not exist.

Ranks: 2
Told: the root of a collective is a rank that does not exist
Told: names rank 2 as the root of its broadcast (owner_beyond_the_world.py:22 called from :
"""

import torch
import torch.distributed as dist


class Owners:
    def __init__(self, params):
        self.params = list(params)
        self.each = len(self.params) // dist.get_world_size()

    def owner(self, at):
        return at // self.each  # right: return min(at // self.each, dist.get_world_size() - 1)

    def step(self):
        for at, param in enumerate(self.params):
            dist.broadcast(param.detach(), src=self.owner(at))  # cause


dist.init_process_group("gloo")
net = torch.nn.Sequential(
    torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, False)
)
Owners(net.parameters()).step()
dist.destroy_process_group()
