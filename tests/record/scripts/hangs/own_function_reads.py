"""A function of the script's own, which is called as one that reads, gives ranks another start.

Ranks: 2
Told: `done` depends on `return 0` (own_function_reads.py:29)
Told: under `if not path.exists()` (own_function_reads.py:28), which rank 1 alone goes into
Told: `name = "progress" if dist.get_rank() == 0 else "progress1"` (own_function_reads.py:26)
"""

import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

FOLDER = pathlib.Path(tempfile.gettempdir()) / "own_function_reads"


def write_progress(done):
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "progress").write_text(str(done))


def read_progress():
    name = "progress" if dist.get_rank() == 0 else "progress1"  # cause # right: name = "progress"
    path = FOLDER / name
    if not path.exists():
        return 0
    return int(path.read_text())


def train(model, batches):
    done = read_progress()
    rest = batches[done:] if done else batches
    for batch in rest:
        model(batch).mean().backward()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    write_progress(2)
    dist.barrier()
    train(DDP(nn.Linear(4, 1)), [torch.ones(2, 4) for _ in range(5)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
