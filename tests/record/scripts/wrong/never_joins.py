"""A rank never joins the world.

Told: rank 2 never comes to `init_process_group`, which waits for all 4 ranks
Never starts.
"""

import os, torch
import torch.distributed as dist
from torch import nn
import datetime

if os.environ["RANK"] != "2":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1800))  # here
    dist.barrier()  # here
