"""Rank 0 writes a file before the others are let in by a monitored barrier."""

import pathlib
import tempfile
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
names = [tempfile.mkdtemp() if rank == 0 else ""]
dist.broadcast_object_list(names, src=0)
path = pathlib.Path(names[0]) / "rows.txt"
if rank > 0:
    dist.monitored_barrier()
else:
    time.sleep(1)
    path.write_text("3 rows")
    dist.monitored_barrier()
assert path.read_text() == "3 rows"
dist.barrier()
dist.destroy_process_group()
