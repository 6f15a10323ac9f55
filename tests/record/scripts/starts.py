"""Ranks that never meet, or meet in vain: KIND says why; `right` is right."""

import os
import socket
import sys

import torch
import torch.distributed as dist

kind = os.environ["KIND"]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
backend, more = "gloo", {}
if kind == "missing" and rank == 1:
    sys.exit()
if kind == "sizes":
    more = {"rank": rank, "world_size": world + rank}
if kind == "larger":
    more = {"rank": rank, "world_size": world + 1}
if kind == "twice":
    more = {"rank": 0, "world_size": world}
if kind == "own_port":
    os.environ["MASTER_PORT"] = "29879"
if kind == "port":
    os.environ["MASTER_PORT"] = os.environ["TAKEN"]
if kind == "own_port" and rank == 0:
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
if kind == "name":
    os.environ.update(MASTER_ADDR="trainer-0.invalid", MASTER_PORT="29878")
if kind == "places":
    os.environ["MASTER_PORT"] = f"2987{rank}"
if kind == "backends":
    backend = "gloo" if rank else "nccl"
if kind == "turned":
    more = {"rank": world - 1 - rank, "world_size": world}
dist.init_process_group(backend, **more)
dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
