"""After `mesh._flatten()`, two nested shards are joined in the wrong order, and a row is lost.

torch 2.13, CPU, Gloo: five rows as [Shard(0), Shard(0)] over 2 x 2 ranks, made whole again. No
error is raised. pytorch PR #194457 reports the same numbers.

    python flatten_then_redistribute.py
"""

# mypy: ignore-errors

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def rank_main(rank: int, folder: str) -> None:
    """Cut five rows twice and join them, before and after the mesh was flattened."""
    store = dist.FileStore(str(Path(folder) / "store"), 4)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    rows = torch.arange(15.0).reshape(5, 3)
    before = distribute_tensor(rows, mesh, [Shard(0), Shard(0)]).full_tensor()
    mesh._flatten("both")  # noqa: SLF001 -- no public name
    after = distribute_tensor(rows, mesh, [Shard(0), Shard(0)]).full_tensor()
    if rank == 0:
        sys.stdout.write(f"before: {before[:, 0].tolist()}\nafter: {after[:, 0].tolist()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (folder,), nprocs=4)
