"""Scripts for CUDA on a machine without: backends are mapped, devices taken for the CPU."""

from __future__ import annotations

import os
import sys
from typing import Any

HINT = "this machine has no CUDA: `scenario record --cuda-as-cpu` takes the CPU in its place"


def map_backends() -> None:
    """Let a group that asks for `nccl` be one of Gloo, and say it at the first `.cuda()`."""
    import torch
    import torch.distributed

    module: Any = torch.distributed.distributed_c10d
    for name in ("init_process_group", "_new_group_with_tag"):
        _mapped(module, name)
    cuda: Any = torch.cuda
    lazy = cuda._lazy_init

    def initialising() -> Any:
        if os.environ.get("RANK", "0") == "0":
            print(f"scenario: {HINT}", file=sys.stderr)
        return lazy()

    cuda._lazy_init = initialising


def _classes() -> tuple[Any, Any]:
    import torch

    return torch.Tensor, torch.nn.Module


def on_gloo(backend: Any) -> Any:
    """Return the backend that stands for one here: `cpu:gloo,cuda:nccl` is `gloo`."""
    return "gloo" if isinstance(backend, str) and "nccl" in backend.lower() else backend


def _mapped(module: Any, name: str) -> None:
    import torch.distributed as dist

    function = getattr(module, name)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(on_gloo, args))
        if "backend" in kwargs:
            kwargs["backend"] = on_gloo(kwargs["backend"])
        if name == "init_process_group":
            kwargs.pop("device_id", None)
        return function(*args, **kwargs)

    mapped.__name__ = name
    for holder in (module, dist):
        if getattr(holder, name, None) is function:
            setattr(holder, name, mapped)


def install() -> None:
    """Take the CPU for every CUDA device, in this process."""
    import torch

    map_backends()
    cpu = torch.device("cpu")

    def same(module: Any, *_: Any, **__: Any) -> Any:
        return module

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def plain(device: Any) -> Any:
        kind = device.type if isinstance(device, torch.device) else device
        is_cuda = isinstance(kind, str) and kind.split(":")[0] == "cuda"
        return cpu if is_cuda or (isinstance(kind, int) and not isinstance(kind, bool)) else device

    tensor, module = _classes()
    tensor.cuda = same
    module.cuda = same
    to_tensor, to_module = tensor.to, module.to

    def tensor_to(own: Any, *args: Any, **kwargs: Any) -> Any:
        return to_tensor(own, *map(plain, args), **{k: plain(v) for k, v in kwargs.items()})

    def module_to(own: Any, *args: Any, **kwargs: Any) -> Any:
        return to_module(own, *map(plain, args), **{k: plain(v) for k, v in kwargs.items()})

    tensor.to, module.to = tensor_to, module_to
    for name in _FACTORIES:
        _on_cpu(torch, name, plain)
    load = torch.load

    def loaded(*args: Any, **kwargs: Any) -> Any:
        kwargs["map_location"] = "cpu"
        return load(*args, **kwargs)

    torch.load = loaded
    cuda: Any = torch.cuda
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all"):
        setattr(cuda, name, nothing)
    cuda.reset_peak_memory_stats = nothing
    cuda.is_available = lambda: True
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.current_device = lambda: int(os.environ.get("LOCAL_RANK", "0"))
    cuda.max_memory_allocated = lambda *_: 0
    cuda.memory_allocated = lambda *_: 0
    cuda.get_device_name = lambda *_: "the CPU in place of a CUDA device"
    cuda._lazy_init = nothing


_FACTORIES = (
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
)


def _on_cpu(torch: Any, name: str, plain: Any) -> None:
    function = getattr(torch, name)

    def made(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = plain(kwargs["device"])
        return function(*args, **kwargs)

    made.__name__ = name
    setattr(torch, name, made)
