"""Which backend a scenario runs on, and why it cannot run on one.

Handed `torch` by its callers; imports nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.problems import LaunchError, UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

    from runner.scenario import Scenario


def names(backend: str) -> tuple[str, ...]:
    """Return the backends in torch's spelling: `gloo`, or `cpu:gloo,cuda:nccl`."""
    parts = (part.strip() for part in backend.lower().split(","))
    return tuple(part.rpartition(":")[2] for part in parts)


def resolve(torch: ModuleType, requested: str, scenario: Scenario, *, share_gpu: bool) -> str:
    """Return the backend for a scenario: `auto` is NCCL where each rank has a GPU, else Gloo.

    Raises UnsupportedError where the scenario excludes the backend, LaunchError where the machine
    cannot run it.
    """
    backend = requested.lower()
    if backend == "auto":
        backend = _automatic(torch, scenario.world_size, share_gpu=share_gpu)
    _require_meant(backend, scenario)
    if "nccl" in names(backend):
        _require_gpus(torch, scenario.world_size, share_gpu=share_gpu)
    return backend


def _automatic(torch: ModuleType, world_size: int, *, share_gpu: bool) -> str:
    dist = torch.distributed
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    return "nccl" if gpus >= world_size or (gpus and share_gpu) else "gloo"


def _require_meant(backend: str, scenario: Scenario) -> None:
    meant = scenario.backends
    if meant is not None and not set(names(backend)).intersection(meant):
        message = f"it is meant for {', '.join(meant)}; this run is on {backend}"
        raise UnsupportedError(message)


def _require_gpus(torch: ModuleType, world_size: int, *, share_gpu: bool) -> None:
    if not torch.distributed.is_nccl_available():
        message = (
            f"the installed torch {torch.__version__} is built without NCCL. Install a CUDA build "
            "of torch, or run with --backend gloo."
        )
        raise LaunchError(message)
    gpus = torch.cuda.device_count()
    if gpus == 0:
        message = "NCCL needs a GPU, and torch sees none here. Run with --backend gloo."
        raise LaunchError(message)
    if gpus < world_size and not share_gpu:
        message = (
            f"it has {world_size} ranks and this machine {gpus} GPU{'s'[: gpus != 1]}; NCCL takes "
            "one rank a GPU. Run it with --backend gloo, or with --share-gpu where NCCL allows it."
        )
        raise UnsupportedError(message)


def require_known(torch: ModuleType, backend: str) -> None:
    """Raise LaunchError where torch knows no backend of that name, plugins being imported."""
    dist = torch.distributed
    known = [str(name) for name in dist.Backend.backend_list if name != "undefined"]
    for name in names(backend):
        if name not in known:
            message = (
                f"torch {torch.__version__} has no backend {name!r}; it knows {', '.join(known)}. "
                "A backend of your own is registered by a module named with --plugin."
            )
            raise LaunchError(message)
        if name in {"gloo", "nccl", "mpi", "ucc", "xccl"} and not dist.is_backend_available(name):
            message = f"the installed torch {torch.__version__} is built without {name}."
            raise LaunchError(message)
