"""A rank never joins the world.

Finds: missing_participant
"""

import os, torch
import torch.distributed as dist
from torch import nn
import datetime

if os.environ["RANK"] != "2":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1800))  # here
    dist.barrier()  # here
