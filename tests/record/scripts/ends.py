"""Rank 1 ends in one of several ways while the others are in an all_reduce."""

import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
how = os.environ["HOW"]
dist.all_reduce(torch.ones(2))
if dist.get_rank() == 1:
    if how == "raise":
        raise ValueError("no data on rank 1")
    if how == "exit":
        sys.exit(3)
    if how == "leave":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "return":
        sys.exit(0)
dist.all_reduce(torch.ones(3))
if how == "all":
    sys.exit(3)
dist.destroy_process_group()
