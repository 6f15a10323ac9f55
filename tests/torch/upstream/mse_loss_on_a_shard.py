"""The gradient of `mse_loss` on a sharded DTensor is too large by the number of ranks.

torch 2.13, CPU, Gloo. The loss is right, and no error is raised: `smooth_l1_loss`, `huber_loss` and
`binary_cross_entropy` behave alike, `((x - y) ** 2).mean()` and `l1_loss` are right. With rows that
do not divide the loss is wrong as well.

    python mse_loss_on_a_shard.py
"""

# mypy: ignore-errors

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def rank_main(rank: int, ranks: int, rows: int, folder: str) -> None:
    """Compare the loss and the gradient of one rank's shard with those of one process."""
    store = dist.FileStore(str(Path(folder) / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    x, y = torch.randn(rows, 4), torch.randn(rows, 4)
    whole = x.clone().requires_grad_()
    loss = torch.nn.functional.mse_loss(whole, y)
    loss.backward()
    placed = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    sharded = torch.nn.functional.mse_loss(placed, distribute_tensor(y, mesh, [Shard(0)]))
    sharded.backward()
    ratio = placed.grad.full_tensor() / whole.grad
    seen = sharded.full_tensor().item()
    if rank == 0:
        ratios = [round(float(row.mean()), 3) for row in ratio]
        told = f"ranks {ranks} rows {rows}: loss {seen:.5f}, one process {loss.item():.5f}"
        sys.stdout.write(f"{told}\ngradient / one process, row by row: {ratios}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    for ranks, rows in ((2, 6), (3, 7)):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(rank_main, (ranks, rows, folder), nprocs=ranks)
