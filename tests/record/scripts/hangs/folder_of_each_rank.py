"""Each rank names the folder of its run by itself, and gives up waiting for a file in its own.

Ranks: 2
Told: asks again and again for the file
Told: fix: let the ranks agree on the folder
"""

import tempfile
import time
import uuid
from pathlib import Path

import torch
import torch.distributed as dist


class Settings:
    def __init__(self):
        self.folder = Path(tempfile.gettempdir()) / name_run()


def name_run():
    own = uuid.uuid4().hex
    return own  # right: return take_first(own)


def take_first(own):
    given = [own]
    dist.broadcast_object_list(given)
    return given[0]


def load_rows(settings, rank, seconds=2):
    path = settings.folder / "rows.pt"
    if rank == 0:
        settings.folder.mkdir(parents=True)
        torch.save(torch.ones(4), path)
    end = time.time() + seconds
    while time.time() < end:
        if path.exists():  # cause
            time.sleep(0.2)
            return torch.load(path)
        time.sleep(0.05)
    raise TimeoutError(f"{path} is not there")


dist.init_process_group("gloo")
settings = Settings()
if dist.get_rank() == 0:
    print(settings.folder)
rows = load_rows(settings, dist.get_rank())
dist.all_reduce(rows)
dist.destroy_process_group()
