"""Rank 0 counts rows in a program of its own, which finds RANK in its environment and joins the job.

Ranks: 2
Told: joins the job in its place
Told: rank 0 has started it at child_joins_the_job.py:
"""

import os
import sys
from subprocess import check_output

import torch
import torch.distributed as dist

COUNTS = "import torch.distributed as dist; dist.init_process_group('gloo'); print(3)"
WORLD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
ALONE = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", **WORLD}

dist.init_process_group("gloo")
rows = torch.zeros(1)
if dist.get_rank() == 0:
    command = [sys.executable, "-c", COUNTS]
    out = check_output(command)  # cause  # right: out = check_output(command, env=ALONE)
    rows += int(out)
dist.broadcast(rows, src=0)
dist.destroy_process_group()
