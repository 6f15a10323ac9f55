"""Each rank waits for its turn at a file system, and the last one longer than the timeout.

Ranks: 2
Told: timeout_too_short
Told: whose timeout is 3 s
Told: since all_reduce (late_by_its_number.py:16) it has run `time.sleep(5 * dist.get_rank())`
"""

import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
dist.all_reduce(torch.ones(2))
time.sleep(5 * dist.get_rank())  # cause # right: time.sleep(0.1 * dist.get_rank())
dist.barrier()
dist.destroy_process_group()
