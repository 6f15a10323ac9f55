"""Ranks that the script spawns by itself; with WRONG, one of them leaves out a call.

FIRST is what they count from. With ONE_BY_ONE it starts them by `Process`, and a helper with them.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(place: int, world: int, folder: str) -> None:
    rank = int(os.environ.get("FIRST", "0")) + place
    dist.init_process_group("gloo", init_method=f"file://{folder}", rank=rank, world_size=world)
    total = torch.ones(2)
    for sample in ("3", "x" if "WRONG" in os.environ and rank == 1 else "4"):
        try:
            total += int(sample)
            dist.all_reduce(total)
        except ValueError:
            continue
    dist.barrier()
    dist.destroy_process_group()


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
