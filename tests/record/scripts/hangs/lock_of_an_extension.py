"""A process that was ended has left torch's lock on an extension; rank 0 waits for it to go.

Ranks: 2
Told: has left the file `lock`
"""

import os
import tempfile

import torch.distributed as dist
from torch.utils.file_baton import FileBaton

dist.init_process_group("gloo")
lock = os.path.join(tempfile.mkdtemp(), "lock")
if dist.get_rank() == 0:
    open(lock, "w").close()  # right: pass
    if os.path.exists(lock):
        FileBaton(lock).wait()  # cause
dist.barrier()
dist.destroy_process_group()
