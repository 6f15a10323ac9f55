"""Scripts for CUDA on a machine without: backends are mapped, devices taken for the CPU.

What is recorded is who communicates what, in which order. That is the same on the CPU as long as
the script takes the same way: so `torch.cuda` answers as a machine with a GPU for each rank, and
whatever names such a device gets the CPU. Numbers differ by rounding, times mean nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import torch
import torch.distributed.device_mesh
from torch.nn.modules._functions import SyncBatchNorm as SyncBatchNormFunction
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from torch_scenarios.record.import_hook import ImportHook
from torch_scenarios.record.recorder import leave_untraced

HINT = "this machine has no CUDA: `scenario record --cuda-as-cpu` takes the CPU in its place"


def map_backends() -> None:
    """Let a group that asks for `nccl` be one of Gloo, and say it at the first `.cuda()`."""
    module: Any = torch.distributed.distributed_c10d
    for name in ("init_process_group", "_new_group_with_tag"):
        _map_backend(module, name)
    cuda: Any = torch.cuda
    lazy = cuda._lazy_init

    def initialise() -> Any:
        if os.environ.get("RANK", "0") == "0":
            print(f"scenario: {HINT}", file=sys.stderr)
        return lazy()

    cuda._lazy_init = initialise


def find_stand_in(backend: Any) -> Any:
    """Return the backend that stands for one here: `cpu:gloo,cuda:nccl` is `gloo`.

    A group of NCCL cannot be made without a GPU. Gloo has the same collectives on the CPU.
    """
    return "gloo" if isinstance(backend, str) and "nccl" in backend.lower() else backend


def _map_backend(module: Any, name: str) -> None:
    """Let a function that makes a group take Gloo for NCCL, under both names that torch has for it.

    `device_id` is left out: with it torch connects NCCL eagerly, which Gloo does not know.
    """
    function = getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(find_stand_in, args))
        if "backend" in kwargs:
            kwargs["backend"] = find_stand_in(kwargs["backend"])
        if name == "init_process_group":
            kwargs.pop("device_id", None)
        return function(*args, **kwargs)

    call.__name__ = name
    for holder in (module, torch.distributed):
        if getattr(holder, name, None) is function:
            setattr(holder, name, call)


#: functions of torch.cuda that there is nothing to do for
_SILENT = (
    *("set_device", "set_stream", "synchronize", "empty_cache", "manual_seed", "manual_seed_all"),
    *("reset_peak_memory_stats", "_lazy_init"),
)


def _nothing() -> Any:
    """Return a function that does nothing: torch.compile has a table in which each is its own."""

    def do_nothing(*_: Any, **__: Any) -> None:
        return None

    return do_nothing


def install() -> None:
    """Take the CPU for every CUDA device, in this process.

    `.cuda()`, `.to("cuda:0")`, factories with `device=`, `torch.load`, streams, events, autocast,
    meshes and DDP's `device_ids`. The rest of `torch.cuda` that scripts ask at their start has an
    answer that lets them go on (`get_device_capability` is that of an A100, (8, 0)).
    """
    map_backends()
    cpu = torch.device("cpu")
    leave_untraced(sys.modules[__name__])

    def same(module: Any, *_: Any, **__: Any) -> Any:
        return module

    def plain(device: Any) -> Any:
        kind = device.type if isinstance(device, torch.device) else device
        is_cuda = isinstance(kind, str) and kind.split(":")[0] == "cuda"
        return cpu if is_cuda or (isinstance(kind, int) and not isinstance(kind, bool)) else device

    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    tensor.cuda = same
    module.cuda = same
    to_tensor, to_module = tensor.to, module.to

    def tensor_to(own: Any, *args: Any, **kwargs: Any) -> Any:
        return to_tensor(own, *map(plain, args), **{k: plain(v) for k, v in kwargs.items()})

    def module_to(own: Any, *args: Any, **kwargs: Any) -> Any:
        return to_module(own, *map(plain, args), **{k: plain(v) for k, v in kwargs.items()})

    tensor.to, module.to = tensor_to, module_to
    for name in _FACTORIES:
        _use_cpu(torch, name, plain)
    load = torch.load

    def load_on_cpu(*args: Any, **kwargs: Any) -> Any:
        kwargs["map_location"] = "cpu"
        return load(*args, **kwargs)

    torch.load = load_on_cpu
    cuda: Any = torch.cuda
    for name in _SILENT:
        setattr(cuda, name, _nothing())
    cuda.is_available = lambda: True
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.current_device = lambda: int(os.environ.get("LOCAL_RANK", "0"))
    cuda.max_memory_allocated = lambda *_: 0
    cuda.memory_allocated = lambda *_: 0
    cuda.get_device_name = lambda *_: "the CPU in place of a CUDA device"
    cuda.is_initialized = lambda: True
    cuda.is_current_stream_capturing = cuda.graphs.is_current_stream_capturing = lambda: False
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.get_device_capability = lambda *_: (8, 0)
    cuda.get_device_properties = lambda *_: _Properties()
    cuda.mem_get_info = lambda *_: (1 << 34, 1 << 34)
    cuda.memory_reserved = cuda.max_memory_reserved = lambda *_: 0
    cuda.memory_stats = lambda *_: {}
    cuda.Stream = cuda.ExternalStream = _Stream
    cuda.current_stream = cuda.default_stream = lambda *_: _Stream()
    cuda.stream = cuda.device = _Context
    cuda.Event = _Event
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(cuda.nvtx, name, _nothing())
    _accelerate(torch, plain)
    tensor.pin_memory = same
    tensor.record_stream = _nothing()
    _use_cpu_autocast(torch)
    _use_cpu_mesh(plain)
    _drop_device_ids()
    _use_cpu_batch_norm()


def _accelerate(torch: Any, plain: Any) -> None:
    """Let `torch.accelerator`, where there is one, and the default device be those of CUDA."""
    default = torch.set_default_device

    def set_default_device(device: Any) -> None:
        default(plain(device))

    torch.set_default_device = set_default_device
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    cuda: Any = torch.cuda
    accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    accelerator.is_available = cuda.is_available
    accelerator.device_count = cuda.device_count
    for name in ("current_device_index", "current_device_idx"):
        setattr(accelerator, name, cuda.current_device)
    for name in ("set_device_index", "set_device_idx"):
        setattr(accelerator, name, cuda.set_device)
    for name in ("synchronize", "empty_cache", "set_stream", "reset_peak_memory_stats"):
        setattr(accelerator, name, cuda.synchronize)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(accelerator, name, cuda.memory_allocated)
    accelerator.max_memory_reserved = cuda.memory_allocated
    accelerator.current_stream = cuda.current_stream
    accelerator.get_memory_info = cuda.mem_get_info
    accelerator.device_index = cuda.device


class _Properties:
    """What a script asks of a device."""

    name = "the CPU in place of a CUDA device"
    total_memory = 1 << 34
    multi_processor_count = 1
    major, minor = 8, 0


class _Context:
    """`with torch.cuda.stream(...)` and `with torch.cuda.device(...)`: nothing."""

    def __init__(self, *_: Any) -> None:
        """Take what torch's takes."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _Stream(_Context):
    """A stream: everything is done in order anyway."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take what torch's takes."""

    def synchronize(self) -> None:
        """Do nothing."""

    wait_event = wait_stream = record_event = lambda *_: None

    def query(self) -> bool:
        """Return that everything is done."""
        return True

    def is_capturing(self) -> bool:
        """Return that no graph is captured."""
        return False


class _Event(_Stream):
    """An event on a stream: it is there once it is recorded."""

    record = wait = lambda *_: None

    def elapsed_time(self, _: Any) -> float:
        """Return some time in milliseconds."""
        return 1.0


def _use_cpu_autocast(torch: Any) -> None:
    """Let `torch.autocast("cuda")` and a scaler of gradients be those of the CPU."""

    def first(function: Any) -> Any:
        def construct(own: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
            kwargs.pop("device_type", None)
            kwargs.pop("device", None)
            function(own, "cpu", *args, **kwargs)

        return construct

    torch.autocast.__init__ = first(torch.autocast.__init__)
    torch.amp.GradScaler.__init__ = first(torch.amp.GradScaler.__init__)


def _use_cpu_mesh(plain: Any) -> None:
    """Let a mesh of CUDA devices be one of the CPU."""
    module: Any = torch.distributed.device_mesh
    make, begin = module.DeviceMesh.__init__, module.init_device_mesh

    def replace_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if "device_type" in kwargs:
            kwargs["device_type"] = str(plain(kwargs["device_type"]))
            return args
        return (str(plain(args[0])), *args[1:])

    def construct(own: Any, *args: Any, **kwargs: Any) -> None:
        make(own, *replace_device(args, kwargs), **kwargs)

    def begin_on_cpu(*args: Any, **kwargs: Any) -> Any:
        return begin(*replace_device(args, kwargs), **kwargs)

    module.DeviceMesh.__init__ = construct
    holder: Any
    for holder in (module, torch.distributed):
        holder.init_device_mesh = begin_on_cpu


def _drop_device_ids() -> None:
    """Let DDP and FSDP take a module on the CPU whatever device they are given."""
    make = DistributedDataParallel.__init__

    def construct(
        own: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        make(own, module, None, None, *args, **kwargs)

    kind: Any = DistributedDataParallel
    kind.__init__ = construct
    ImportHook({_FSDP: _shard_on_cpu}).install()


#: the module of torch that has FSDP1
_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"


def _shard_on_cpu(module: Any) -> None:
    """Let FSDP shard on the CPU whatever `device_id` it is given."""
    kind = module.FullyShardedDataParallel
    make = kind.__init__
    signature = inspect.signature(make)

    def construct(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        if given.arguments.get("device_id") is not None:
            given.arguments["device_id"] = torch.device("cpu")
        make(*given.args, **given.kwargs)

    kind.__init__ = construct


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


def _use_cpu(torch: Any, name: str, plain: Any) -> None:
    function = getattr(torch, name)

    def make_on_cpu(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = plain(kwargs["device"])
        return function(*args, **kwargs)

    make_on_cpu.__name__ = name
    setattr(torch, name, make_on_cpu)


# -------------------------------------------------------------------------------------------------
# SyncBatchNorm.

#: where torch keeps kernels as long as the process lives
_KERNELS: list[Any] = []


def _use_cpu_batch_norm() -> None:
    """Let layers of SyncBatchNorm take rows on the CPU; torch has kernels for GPUs alone.

    What the layer communicates is torch's own code: an all_gather of each rank's means, deviations
    and counts on the way forward, an all_reduce of two sums on the way back. Here are the five
    kernels between these, in operators that every device has. `C` are channels, the second
    dimension of rows `[N, C, ...]`; `W` are the ranks of the group.

        rows ── batch_norm_stats ── all_gather ── ..._gather_stats_with_counts ── ..._elemt
        gradients ── batch_norm_backward_reduce ── all_reduce ── batch_norm_backward_elemt
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for kernel in (_find_stats, _join_stats, _normalise, _sum_gradients, _spread_gradients):
        library.impl(_NAMES[kernel], kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    _KERNELS.append(library)
    layer: Any = SyncBatchNorm
    layer.forward = _normalise_by_all
    ddp: Any = DistributedDataParallel
    ddp._passing_sync_batchnorm_handle = lambda *_: None


def _normalise_by_all(layer: Any, rows: Any) -> Any:
    """Normalise rows by what all ranks of the group have, in training; else as BatchNorm does."""
    dist = torch.distributed
    group = layer.process_group or (dist.group.WORLD if dist.is_initialized() else None)
    world = dist.get_world_size(group) if group is not None else 1
    if not layer.training or world < 2:
        return _BatchNorm.forward(layer, rows)
    layer._check_input_dim(rows)
    layer._check_non_zero_input_channels(rows)
    share = layer.momentum or 0.0
    mean = variance = None
    if layer.track_running_stats:
        mean, variance = layer.running_mean, layer.running_var
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            share = 1.0 / float(layer.num_batches_tracked)
    return SyncBatchNormFunction.apply(  # type: ignore[no-untyped-call]
        rows, layer.weight, layer.bias, mean, variance, layer.eps, share, group, world
    )


def _find_stats(rows: Any, eps: float) -> tuple[Any, Any]:
    """Return the mean `[C]` of each channel, and one over its deviation, in float32 at least."""
    flat = _flatten(rows)
    return flat.mean(1), torch.rsqrt(flat.var(1, correction=0) + eps)


def _join_stats(
    rows: Any,
    means: Any,
    inverses: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
    counts: Any,
) -> tuple[Any, Any]:
    """Return mean and one over the deviation `[C]` of the rows of all ranks, given as `[W, C]`.

    The running statistics move by `momentum` towards them; a running variance is unbiased.
    """
    del rows
    weights = (counts / counts.sum()).to(means.dtype).unsqueeze(-1)
    mean = (weights * means).sum(0)
    variance = (weights * (inverses**-2 - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = variance * (counts.sum() / (counts.sum() - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return mean, torch.rsqrt(variance + eps)


def _normalise(rows: Any, weight: Any, bias: Any, mean: Any, inverse: Any, eps: float) -> Any:
    """Return rows without their mean, over their deviation, times the weight, with the bias."""
    del eps
    flat = (_flatten(rows) - mean.unsqueeze(-1)) * inverse.unsqueeze(-1)
    if weight is not None:
        flat = flat * weight.unsqueeze(-1)
    if bias is not None:
        flat = flat + bias.unsqueeze(-1)
    return _restore(flat, rows)


def _sum_gradients(
    gradients: Any,
    rows: Any,
    mean: Any,
    inverse: Any,
    weight: Any,
    *_needed: bool,
) -> tuple[Any, Any, Any, Any]:
    """Return the sums `[C]` of gradients, and of gradients times rows; those of weight and bias."""
    flat = _flatten(gradients)
    total = flat.sum(1)
    moved = (flat * (_flatten(rows) - mean.unsqueeze(-1))).sum(1)
    dtype = total.dtype if weight is None else weight.dtype
    return total, moved, (moved * inverse).to(dtype), total.to(dtype)


def _spread_gradients(
    gradients: Any,
    rows: Any,
    mean: Any,
    inverse: Any,
    weight: Any,
    total: Any,
    moved: Any,
    counts: Any,
) -> Any:
    """Return the gradients of rows, of sums `[C]` over all ranks."""
    count = counts.sum()
    centred = (_flatten(rows) - mean.unsqueeze(-1)) * (inverse**2 * moved / count).unsqueeze(-1)
    flat = (_flatten(gradients) - (total / count).unsqueeze(-1) - centred) * inverse.unsqueeze(-1)
    if weight is not None:
        flat = flat * weight.unsqueeze(-1)
    return _restore(flat, rows)


def _flatten(rows: Any) -> Any:
    """Return rows `[N, C, ...]` as `[C, N ...]`, in float32 at least."""
    flat = rows.transpose(0, 1).flatten(1)
    return flat.float() if flat.dtype in {torch.float16, torch.bfloat16} else flat


def _restore(flat: Any, rows: Any) -> Any:
    """Return what `_flatten` made as rows, in their dtype and order of memory."""
    sizes = (rows.shape[1], rows.shape[0], *rows.shape[2:])
    out = torch.empty_like(rows)
    out.copy_(flat.unflatten(1, sizes[1:]).transpose(0, 1))
    return out


_NAMES = {
    _find_stats: "batch_norm_stats",
    _join_stats: "batch_norm_gather_stats_with_counts",
    _normalise: "batch_norm_elemt",
    _sum_gradients: "batch_norm_backward_reduce",
    _spread_gradients: "batch_norm_backward_elemt",
}
