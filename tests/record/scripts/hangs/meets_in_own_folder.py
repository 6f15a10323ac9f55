"""Each rank makes a folder of its own for the file at which they are to meet.

Ranks: 2
Told: `folder = os.environ.get("JOB_DIR") or tempfile.mkdtemp()` (meets_in_own_folder.py:
Told: fix: give every rank the same `init_method`
"""

import os
import tempfile

import torch.distributed as dist


def setup(rank, world):
    folder = os.environ.get("JOB_DIR") or tempfile.mkdtemp()  # cause # right: folder = os.getcwd()
    method = "file://" + os.path.join(folder, "meeting")
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)


setup(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
dist.barrier()
dist.destroy_process_group()
