"""Each rank makes a folder of its own for the file in which ranks meet.

Ranks: 2
Told: `folder: str = field(default_factory=tempfile.mkdtemp)` (store_in_own_folder.py:
"""

import os
import tempfile
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

SHARED = f"{tempfile.gettempdir()}/ranks-{os.environ['MASTER_PORT']}"


@dataclass
class Rendezvous:
    rank: int
    world: int
    folder: str = field(default_factory=tempfile.mkdtemp)  # cause # right: folder: str = SHARED

    @property
    def url(self):
        os.makedirs(self.folder, exist_ok=True)
        return f"file://{self.folder}/rendezvous"


class Worker:
    def __init__(self, meet):
        self.meet = meet

    def __enter__(self):
        dist.init_process_group(
            backend="gloo",
            init_method=self.meet.url,
            rank=self.meet.rank,
            world_size=self.meet.world,
        )
        return self

    def __exit__(self, *_):
        dist.destroy_process_group()

    def run(self):
        total = torch.tensor([self.meet.rank + 1.0])
        dist.all_reduce(total)
        return total.item()


if __name__ == "__main__":
    with Worker(Rendezvous(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))) as worker:
        print("sum", worker.run())
