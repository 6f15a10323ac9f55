"""Rank 1 waits for another rank, and not in a call: in one of several ways."""

import os
import queue
import socket
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

how = os.environ["HOW"]
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(2))
if rank == 1:
    if how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif how == "queue":
        queue.Queue().get()
    elif how == "sleep":
        while not Path(os.environ["FLAG"]).exists():
            time.sleep(0.05)
    elif how == "compute":
        turns = 0
        while True:
            turns += 1
    elif how == "socket":
        one, two = socket.socketpair()
        one.recv(1)
    elif how == "thread":
        never = threading.Event()
        thread = threading.Thread(target=never.wait)
        thread.start()
        thread.join()
dist.all_gather_object([None] * dist.get_world_size(), rank)
dist.destroy_process_group()
