"""A rank saves its reader with a checkpoint, which cannot be pickled while a file is open.

Ranks: 2
Told: rank 1 raises TypeError: cannot save an open reader
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn


class Reader:
    def __init__(self) -> None:
        self.file = None

    def open(self) -> None:
        self.file = tempfile.TemporaryFile()

    def __getstate__(self) -> dict[str, int]:
        if self.file is not None:
            raise TypeError("cannot save an open reader")  # cause
        return {"at": 0}


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
dist.broadcast_object_list(folder)
model, reader = nn.Linear(4, 1), Reader()
if dist.get_rank() == 1:  # right: if False:
    reader.open()
dcp.save(
    {"model": model.state_dict(), f"reader_{dist.get_rank()}": reader}, checkpoint_id=folder[0]
)
dist.barrier()
dist.destroy_process_group()
