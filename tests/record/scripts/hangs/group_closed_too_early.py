"""A group is destroyed after the first epoch, and used again in the second one.

Ranks: 2
Told: the rank has destroyed the group before, in `destroy_process_group`
Told: fix: destroy the group behind its last use
"""

import torch
import torch.distributed as dist


class Evaluator:
    def __init__(self):
        self.group = dist.new_group()

    def mean(self, value):
        found = torch.tensor([value])
        dist.all_reduce(found, group=self.group)
        return found / dist.get_world_size(self.group)

    def close(self):
        dist.destroy_process_group(self.group)  # cause # right: pass


def main():
    dist.init_process_group("gloo")
    evaluator = Evaluator()
    for epoch in range(2):
        evaluator.mean(float(epoch))
        evaluator.close()
    dist.destroy_process_group()


main()
