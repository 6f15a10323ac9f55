"""A script waits for each process before it starts the next one.

Ranks: 2
Told: `p.join()` (joins_what_it_starts.py:
Told: fix: start all processes first
"""

import multiprocessing as mp
import os
import socket

import torch
import torch.distributed as dist


def worker(rank, world, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    x = torch.ones(2) * rank
    dist.all_reduce(x)
    print(rank, x.tolist())
    dist.destroy_process_group()


def launch(world, port):
    context = mp.get_context("spawn")
    processes = []
    for rank in range(world):
        p = context.Process(target=worker, args=(rank, world, port))
        p.start()
        processes.append(p)
        p.join()  # cause # right: pass
    for p in processes:
        p.join()
    return [p.exitcode for p in processes]


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    print(launch(2, port))
