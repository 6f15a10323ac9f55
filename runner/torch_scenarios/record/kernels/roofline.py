"""How long one operator takes on a GPU: by its FLOPs or by its bytes, the longer of both.

A matrix product takes its FLOPs at the rate that such products reach, attention likewise, and
everything else the bytes that it reads and writes at the bandwidth that kernels reach (the roofline
of Williams et al., 2009, operator by operator, as torch's `RuntimeEstimator` has it). FLOPs are
those of torch's own `flop_registry`; of causal attention half, because its kernels leave out what
is masked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

#: operators that start no kernel: they make views, or memory that is not filled
FREE = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"),
        *("detach", "detach_", "alias", "lift", "lift_fresh", "_unsafe_view", "set_"),
        *("_reshape_alias", "is_pinned", "record_stream", "_local_scalar_dense", "sym_size"),
        *("chunk", "tensor_split", "_reinterpret_tensor", "is_same_size", "_fused_sdp_choice"),
    }
)
#: operators that read of their table only what they give out
GATHERING = frozenset({"embedding", "index_select", "index", "gather", "nll_loss_forward"})
#: the warning of a product in float8
OF_FLOAT8 = (
    "scenario: products in float8 take the part of their peak that products in bfloat16 reach, "
    "which was held against no measurement"
)
#: what a backward pass of attention takes in products, by its forward pass: five products for two
BACKWARD = 2.5


class Roofline:
    """The GPU of a machine.

    `tflops` are the peaks by dtype (`tf32`: of float32 where the script allows it), `bandwidth` the
    bytes a microsecond of its memory; `matmul`, `attention`, `attention_backward` and `memory` are
    the parts of these that are reached; no kernel takes less than `least` microseconds.
    """

    def __init__(self, gpu: Mapping[str, Any]) -> None:
        """Know the GPU by the numbers of a topology."""
        self._tflops: dict[str, float] = dict(gpu["tflops"])
        self._bandwidth = float(gpu["bandwidth"]) * float(gpu["memory"])
        self._products = float(gpu["matmul"])
        #: the parts that attention reaches, by the size of a head
        self._heads = {kind: gpu[kind] for kind in ("attention", "attention_backward")}
        self._least = float(gpu["least"])

    def is_fused(self, func: Any, args: Any, kwargs: Any, out: Any) -> bool:
        """Return whether an operator is one that a compiler joins with its neighbours."""
        name = func._schema.name.partition("::")[2]
        gathers = name in GATHERING and not name.startswith("nll_loss")  # a loss is read row by row
        is_free = name in FREE or func.is_view or gathers
        return not is_free and not _flops(func, name, args, kwargs, out)[0]

    def bytes_us(self, size: float) -> float:
        """Return what a kernel takes that moves so many bytes, in microseconds."""
        return max(size / self._bandwidth, self._least) if size else 0.0

    def us(self, func: Any, args: Any, kwargs: Any, out: Any, tensors: Any, outs: Any) -> float:
        """Return what an operator takes, in microseconds; 0 where it starts no kernel.

        `tensors` and `outs` are all tensors that go in and come out.
        """
        name = func._schema.name.partition("::")[2]
        if name in FREE or func.is_view or not (tensors or outs):
            return 0.0
        moved = _bytes(name, args, tensors, outs) / self._bandwidth
        flops, kind = _flops(func, name, args, kwargs, out)
        computed = 0.0
        if flops:
            peak = self._peak(tensors)
            computed = flops / (peak * 1e6 * self._part_of_peak(kind, tensors))
        return float(max(moved, computed, self._least))

    def _part_of_peak(self, kind: str, tensors: Sequence[Any]) -> float:
        """Return the part of the peak that products reach; attention by the nearest head's size."""
        if kind not in self._heads:
            return self._products
        size = tensors[0].shape[-1]
        return float(min(self._heads[kind], key=lambda each: abs(each[0] - size))[1])

    def move_us(self, tensors: Iterable[Any]) -> float:
        """Return what a kernel takes that reads or writes tensors, in microseconds."""
        return float(max(sum(map(count_element_bytes, tensors)) / self._bandwidth, self._least))

    def _peak(self, tensors: Iterable[Any]) -> float:
        """Return the peak of a product of tensors, in TFLOP/s, by the dtype of the first."""
        import torch

        first = next(each for each in tensors if each.dtype.is_floating_point)
        name = str(first.dtype).removeprefix("torch.")
        if name == "float32" and torch.get_float32_matmul_precision() != "highest":
            name = "tf32"
        if name.startswith("float8"):
            name = "float8"
            warnings.warn(OF_FLOAT8, stacklevel=1)  # once: the line is always the same
        return self._tflops.get(name, self._tflops["float32"])


def _flops(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> tuple[float, str]:
    """Return the FLOPs of an operator, and which rate they go at; 0 of one that is no product."""
    if "attention" in name or name.startswith("_flash"):
        kind = "attention_backward" if name.endswith("backward") else "attention"
        return _attention_flops(func, name, args, kwargs), kind
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    return (0.0 if formula is None else float(formula(*args, **kwargs, out_val=out))), "matmul"


def _attention_flops(func: Any, name: str, args: Any, kwargs: Any) -> float:
    """Return the FLOPs of attention over queries `[b, h, q, d]` and keys `[b, h, k, d]`."""
    given = dict(zip([each.name for each in func._schema.arguments], args, strict=False)) | kwargs
    query, key = given.get("query"), given.get("key")
    if query is None or key is None or query.dim() != 4:
        return 0.0
    batch, heads, rows, size = query.shape
    flops = 4.0 * batch * heads * rows * key.shape[2] * size
    if given.get("is_causal"):
        flops /= 2
    return float(flops * BACKWARD if name.endswith("backward") else flops)


def _bytes(name: str, args: Any, tensors: Iterable[Any], outs: Iterable[Any]) -> float:
    """Return the bytes that an operator reads and writes."""
    written = sum(map(count_element_bytes, outs))
    if name in GATHERING:
        return 2.0 * written
    if name == "embedding_dense_backward":
        return written + 2.0 * count_element_bytes(args[0])
    if name == "all_gather_copy_in":  # FSDP2: into a part of a buffer that is all ranks'
        return 2.0 * sum(map(count_element_bytes, args[0]))
    return float(written + sum(map(count_element_bytes, tensors)))


def count_element_bytes(tensor: Any) -> float:
    """Return the bytes of a tensor's elements; those that are expanded count once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return float(prod(size for size, stride in sizes if stride) * tensor.element_size())


def rms_norm(x: Any, weight: Any, move: Callable[..., None]) -> Any:
    """Return rows `[..., d]` of no value as a kernel normalises them; it keeps rows, and a scale.

    `move` is told what its kernels read and write, forwards and backwards.
    """
    import torch

    class RmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rows: Any, scale: Any) -> Any:
            each = rows.new_empty((*rows.shape[:-1], 1), dtype=torch.float32)
            out = torch.empty_like(rows)
            ctx.save_for_backward(rows, scale, each)
            move(rows, out)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            rows, scale, _ = ctx.saved_tensors
            out = torch.empty_like(rows)
            move(grad, rows, out)
            if scale is None:
                return out, None
            move(grad, rows)
            return out, torch.empty_like(scale)

    return RmsNorm.apply(x, weight)  # type: ignore[no-untyped-call]
