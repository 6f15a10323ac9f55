"""DDP on eight large layers. `--alone` leaves DDP out; `--tracked` lets torch track its memory."""

import json
import sys
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, ROWS = 4096, 2048


def train(model: nn.Module, optimizer: torch.optim.Optimizer, tracker: object = None) -> None:
    """Take three steps."""
    for _ in range(3):
        if tracker is not None:
            tracker.reset_mod_stats()
        targets = torch.randint(0, WIDTH, (ROWS,))
        loss = nn.functional.cross_entropy(model(torch.randn(ROWS, WIDTH)), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def network() -> nn.Module:
    """Return eight layers."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(8)))


def track() -> None:
    """Print what torch's own tracker says was held at most."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            train(model, optimizer, tracker)
    (found,) = tracker.get_tracker_snapshot("peak").values()
    kinds = {str(getattr(kind, "value", kind)): size for kind, size in found.items()}
    print(json.dumps({"peak": kinds["Total"], "parameters": kinds["Parameter"]}))


if "--tracked" in sys.argv:
    track()
    sys.exit()
dist.init_process_group("gloo")
model = network()
watched = weakref.ref(model[0][0].weight)  # as DeepSpeed has one to each parameter
model = model.to("cpu:0")  # as scripts bring theirs to a device
if "--alone" not in sys.argv:
    model = DistributedDataParallel(model, bucket_cap_mb=200)
train(model, torch.optim.AdamW(model.parameters(), lr=0.001, foreach=True))
dist.barrier()
dist.destroy_process_group()
