"""A rank that has the file opens it and returns, and the others wait for what rank 0 sends.

Ranks: 2
Told: rank 1 alone takes the `return`
Told: under `if os.path.exists(path)`
"""

import json
import os
import tempfile

import torch
import torch.distributed as dist


def read_names(path):
    if os.path.exists(path):  # cause  # right: if False:
        with open(path) as file:
            return json.load(file)
    box = [None]
    if dist.get_rank() == 0:
        box = [["a", "b", "c"]]
    dist.broadcast_object_list(box, src=0)
    return box[0]


dist.init_process_group("gloo")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "names.json")
    if dist.get_rank() == 1:
        with open(path, "w") as file:
            json.dump(["a", "b", "c"], file)
    names = read_names(path)
weight = torch.ones(len(names))
dist.all_reduce(weight)
dist.destroy_process_group()
