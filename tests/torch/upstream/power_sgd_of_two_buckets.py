"""`powerSGD_hook` over two buckets waits for ever on Gloo.

torch 2.13, CPU, Gloo. The hook makes its second and third all_reduce in callbacks of the future of
the first, and waits in them. Gloo runs callbacks in the two threads that also run its collectives:
with two buckets both threads wait sooner or later, and no thread is left for what they wait for.

    python power_sgd_of_two_buckets.py
"""

# mypy: ignore-errors

import faulthandler
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

#: seconds after which a rank that still waits shows where, and ends
PATIENCE_S = 60
STEPS = 100


def rank_main(rank: int, folder: str, cap_mb: float) -> None:
    """Take some steps; from the third on gradients are sent as matrices of rank 1."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    store = dist.FileStore(str(Path(folder) / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    layers = torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 12)
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=cap_mb)
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(STEPS):
        model(torch.randn(4, 12)).sum().backward()
    if rank == 0:
        sys.stdout.write(f"{STEPS} steps are done\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    for words, cap in {"one bucket": 25, "two buckets": 0.0005}.items():
        sys.stdout.write(f"{words}:\n")
        sys.stdout.flush()
        with tempfile.TemporaryDirectory() as scratch:
            try:
                torch.multiprocessing.spawn(rank_main, (scratch, cap), nprocs=2)
            except torch.multiprocessing.ProcessExitedException:
                sys.stdout.write("a rank waits for ever\n")
