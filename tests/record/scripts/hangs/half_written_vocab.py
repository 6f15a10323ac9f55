"""Rank 0 writes the vocabulary, and rank 1 reads it as soon as the file is there.

Ranks: 2
Told: rank 1 reads vocab.json
"""

import json
import os
import tempfile
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
names = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(names)
path = os.path.join(names[0], "vocab.json")


def build():
    with open(path, "w") as out:  # cause
        out.write('{"a": 1,')
        out.flush()
        time.sleep(1.5)
        out.write(' "b": 2}')


if rank == 0:
    build()
if False:  # right: if True:
    dist.barrier()
while not os.path.exists(path):
    time.sleep(0.05)
with open(path) as given:
    vocab = json.load(given)  # cause
size = torch.tensor([len(vocab)])
dist.all_reduce(size)
dist.destroy_process_group()
