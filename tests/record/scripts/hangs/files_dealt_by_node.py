"""Whole files are dealt to the ranks, and one of them has fewer rows than the others.

Ranks: 2
Told: split_by_node
Told: whole files are dealt to the ranks there
"""

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def split_by_node(files: list[list[int]]) -> list[list[int]]:
    return files[dist.get_rank() :: dist.get_world_size()]


class Files(IterableDataset):
    def __init__(self, files: list[list[int]], deal: object) -> None:
        self.files = deal(files)

    def __iter__(self):
        for file in self.files:
            for row in file:
                yield torch.full((4,), float(row))


def get_loader(folder: str, sizes: list[int]) -> DataLoader:
    data = Files([[*range(size)] for size in sizes], split_by_node)
    return DataLoader(data, batch_size=2)


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
dist.broadcast_object_list(folder)
torch.manual_seed(0)
model = DDP(nn.Linear(4, 1))
loader = get_loader(folder[0], [4, 4, 4, 2])  # right: loader = get_loader(folder[0], [4, 4, 4, 4])
for x in loader:  # cause
    model(x).mean().backward()
dist.barrier()
dist.destroy_process_group()
