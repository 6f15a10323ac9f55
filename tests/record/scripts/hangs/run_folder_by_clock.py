"""The folder of a run has the time in its name, and each rank asks its own clock.

Ranks: 2
Told: rank 1 asks again and again for the file `
Told: and rank 0 writes `
Told: let the ranks agree on the folder
"""

import os
import tempfile
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
stamp = [time.time_ns()]
agreed = 0  # right: dist.broadcast_object_list(stamp)
folder = os.path.join(tempfile.gettempdir(), f"scratch-run-{stamp[0]}")
ready = os.path.join(folder, "ready")
if rank == 0:
    os.makedirs(folder)
    open(ready, "w").close()
while not os.path.exists(ready):  # cause
    time.sleep(0.2)
total = torch.ones(3)
dist.all_reduce(total)
dist.destroy_process_group()
