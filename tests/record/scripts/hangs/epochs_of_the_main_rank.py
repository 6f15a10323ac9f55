"""The main rank alone looks for the latest checkpoint, and all go on from the epoch that they have.

Ranks: 2
Told: if is_main
Told: let all ranks take `if is_main`
Told: send what it sets from one to all
"""

import os
import re
import tempfile

import torch
import torch.distributed as dist


def find_latest(folder):
    found = [re.fullmatch(r"epoch_(\d+)", each) for each in os.listdir(folder)]
    return max((int(each[1]) for each in found if each), default=-1)


def main():
    dist.init_process_group("gloo")
    folder = tempfile.mkdtemp()
    os.makedirs(folder + "/epoch_0")
    is_main = dist.get_rank() == 0  # right: is_main = True
    first = 0
    if is_main:  # cause
        first = find_latest(folder) + 1
    for epoch in range(first, 3):
        for _ in range(4):
            dist.all_reduce(torch.ones(3))
        dist.barrier()
    dist.destroy_process_group()


main()
