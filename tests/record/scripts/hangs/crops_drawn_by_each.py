"""An object that is called gives each rank another number of crops, drawn by itself.

Ranks: 2
Told: which depends on `count = random.randint(1, 2) + 3 * dist.get_rank()`
"""

import random

import torch
import torch.distributed as dist


class MultiCrop:
    def __call__(self, image):
        count = random.randint(1, 2) + 3 * dist.get_rank()  # cause # right: count = 3
        return [image[:, at : at + 2] for at in range(count)]


def main():
    dist.init_process_group("gloo")
    crops, center = MultiCrop(), torch.zeros(2)
    for crop in crops(torch.ones(2, 16)):
        mean = crop.mean(0)
        dist.all_reduce(mean)
        center += mean
    dist.barrier()
    dist.destroy_process_group()


main()
