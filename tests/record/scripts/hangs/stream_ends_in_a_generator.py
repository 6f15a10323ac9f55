"""A generator asks a stream of its own for more than that has, which Python makes an error.

Ranks: 3
Told: ranks 1 and 2 raise RuntimeError: generator raised StopIteration
"""

import torch
import torch.distributed as dist

DOCUMENTS = {"web": 12, "code": 7}


def read(name, rank, world):
    return iter(range(rank, DOCUMENTS[name], world))


def mix(rank, world):
    streams = {name: read(name, rank, world) for name in DOCUMENTS}
    while True:
        for name in DOCUMENTS:
            yield next(streams[name])  # cause # right: yield next(streams[name], 0)


def batches(samples, size):
    while True:
        yield torch.tensor([float(next(samples)) for _ in range(size)])


dist.init_process_group("gloo")
source = batches(mix(dist.get_rank(), dist.get_world_size()), 2)
for _ in range(3):
    batch = next(source)
    dist.all_reduce(batch)
dist.barrier()
dist.destroy_process_group()
