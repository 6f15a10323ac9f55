"""FSDP2 on four wide blocks; `--tracked` lets torch track the memory of one of eight ranks.

What it tracks are steps without an optimizer: where one computes on a DTensor for the first time,
torch's tracker counts the whole tensors by whose shapes DTensor finds its own.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, ROWS = 2048, 4096


class Block(nn.Module):
    """Two products and what is added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def sharded(mesh: DeviceMesh) -> nn.Module:
    """Return four blocks, each of them sharded."""
    model = nn.Sequential(*(Block() for _ in range(4)))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def track() -> None:
    """Print what torch's own tracker says is held at most."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    mesh = init_device_mesh("cpu", (8,))
    with FakeTensorMode():
        model = sharded(mesh)
        x = torch.randn(ROWS, WIDTH)
        tracker = FSDPMemTracker(model)
        tracker.track_inputs((x,))
        with tracker:
            for _ in range(2):
                model(x).sum().backward()
                model.zero_grad()
    (found,) = tracker.get_tracker_snapshot("peak").values()
    kinds = {str(getattr(kind, "value", kind)): size for kind, size in found.items()}
    print(json.dumps({"peak": kinds["Total"], "parameters": kinds["Sharded Param"]}))


if "--tracked" in sys.argv:
    track()
    sys.exit()
dist.init_process_group("gloo")
model = sharded(init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=True)
x = torch.randn(ROWS, WIDTH)
for _ in range(2):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
