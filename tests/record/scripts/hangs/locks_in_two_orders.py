"""A prefetching thread and the main thread take two locks in opposite orders, on rank 0 alone.

Ranks: 2
Told: for the lock `cache`, and holds `stats` since locks_in_two_orders.py
Told: fix: take `cache` and `stats` in one order in all threads
"""

import threading
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
stats, cache = threading.Lock(), threading.Lock()


def prefetch():
    with cache:
        time.sleep(0.3)
        with stats:  # cause
            pass


def report():
    with stats:  # cause # right: if True:
        time.sleep(0.3)
        with cache:
            pass


if dist.get_rank() == 0:
    thread = threading.Thread(target=prefetch, daemon=True)
    thread.start()
    time.sleep(0.1)
    report()
    thread.join()
dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
