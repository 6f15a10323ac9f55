"""Parts of a data set are dealt in the order of their age, which is another one on each node.

Ranks: 2
Told: and each rank lists the files for itself: `names = os.listdir(folder)`
Told: in the order of `names.sort(key=age)`
Told: fix: give all ranks one order
"""

import os
import tempfile

import torch
import torch.distributed as dist


def load(folder, rank, world):
    def age(name):
        return os.path.getmtime(os.path.join(folder, name))

    names = os.listdir(folder)
    names.sort(key=age)  # cause  # right: names.sort()
    mine = [(name, os.path.getsize(os.path.join(folder, name))) for name in names[rank::world]]
    everyone = [None] * world
    dist.all_gather_object(everyone, mine)
    sizes = {}
    for part in everyone:
        sizes.update(part)
    return [sizes[name] for name in names]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
with tempfile.TemporaryDirectory() as folder:
    for when, part in enumerate([0, 1, 2, 3] if rank == 0 else [1, 0, 3, 2]):
        path = os.path.join(folder, f"part-{part}")
        with open(path, "w") as f:
            f.write("x" * part)
        os.utime(path, (100 + when, 100 + when))
    total = torch.tensor([sum(load(folder, rank, world))])
dist.all_reduce(total)
dist.destroy_process_group()
