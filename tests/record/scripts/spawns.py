"""Ranks that the script spawns by itself; with WRONG, one of them leaves out a call.

FIRST is what they count from. With OWN_PORT each of them chooses the port to meet at, with RAISES one
raises, and its group is destroyed all the same. With ONE_BY_ONE it starts them by `Process`, and a helper with them.
"""

import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(place: int, world: int, folder: str) -> None:
    rank = int(os.environ.get("FIRST", "0")) + place
    if "OWN_PORT" in os.environ:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = find_port()
        dist.init_process_group("gloo", rank=rank, world_size=world)
        return
    dist.init_process_group("gloo", init_method=f"file://{folder}", rank=rank, world_size=world)
    total = torch.ones(2)
    if "RAISES" in os.environ:
        try:
            if rank == 1:
                raise ValueError("no batch")
            dist.all_reduce(total)
        finally:
            dist.destroy_process_group()
    for sample in ("3", "x" if "WRONG" in os.environ and rank == 1 else "4"):
        try:
            total += int(sample)
            dist.all_reduce(total)
        except ValueError:
            continue
    dist.barrier()
    dist.destroy_process_group()


def find_port() -> str:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


def help_out() -> None:
    print("a helper")


if __name__ == "__main__":
    if "ONE_BY_ONE" in os.environ:
        mp.Process(target=help_out).start()
        folder = f"{tempfile.mkdtemp()}/meets"
        ranks = [mp.Process(target=work, args=(place, 2, folder)) for place in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
            assert each.exitcode == 0
    else:
        mp.spawn(work, args=(2, f"{tempfile.mkdtemp()}/meets"), nprocs=2)
