"""Within `Join([ddp, zero])` a rank without input steps on its own parameters by old gradients.

torch 2.13, CPU, Gloo. The join hook of DistributedDataParallel lets a joined rank take part in the
all_reduce of each bucket with zeros, and keeps nothing of the result; the hook of
ZeroRedundancyOptimizer then steps on the `.grad` of that rank's last batch, and broadcasts what
results from it. No error is raised, and half of the model follows another gradient.

    python joined_owner_steps_on_old_gradients.py
"""

# mypy: ignore-errors

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

#: the inputs of each rank: rank 1 ends one step before rank 0
INPUTS = ([1.0, 10.0], [1.0])


class Sums(torch.nn.Module):
    """Two parameters with the same gradient, the input: ZeRO gives one to each rank."""

    def __init__(self) -> None:
        """Begin at zero."""
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(2))
        self.second = torch.nn.Parameter(torch.zeros(1))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Add them up."""
        return given * (self.first.sum() + self.second.sum())


def rank_main(rank: int, folder: str) -> None:
    """Train on this rank's inputs, and show the parameters."""
    store = dist.FileStore(str(Path(folder) / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = Sums()
    ddp = DistributedDataParallel(model)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1.0)
    with Join([ddp, zero]):
        for value in INPUTS[rank]:
            zero.zero_grad()
            ddp(torch.tensor(value)).backward()
            zero.step()
    if rank == 0:
        first, second = model.first[0].item(), model.second[0].item()
        sys.stdout.write(f"owned by rank 0: {first:.1f}, by rank 1: {second:.1f}\n")
        sys.stdout.write("one process: -6.0, -6.0\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (folder,), nprocs=2)
