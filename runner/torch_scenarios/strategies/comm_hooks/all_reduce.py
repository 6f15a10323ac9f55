"""`allreduce_hook` and `fp16_compress_hook`: the mean, in float32 or in half of the bytes.

Both divide by the size of the group before they sum (torch 2.13, `default_hooks.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import Any

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.strategies.comm_hooks.base import AT, Bucket, Hook, HookSide
from torch_scenarios.strategies.trainee import sum_over


class AllReduceHook(Hook, frozen=True, kw_only=True):
    """`default_hooks.allreduce_hook`.

    It is what DistributedDataParallel does without a hook: divide by the ranks, then sum.
    """

    name = "allreduce_hook"

    def register(self, real: Any, wrapped: Any, group: Any) -> None:
        """Register it with the group, which is its state."""
        wrapped.register_comm_hook(group, getattr(import_module(f"{AT}.default_hooks"), self.name))

    def side(self, group: Group, caller: Caller, shared: dict[Any, Any]) -> HookSide:
        """Return a side that keeps nothing."""
        return AverageSide(group, self.reduce_dtype)


class Fp16Compress(AllReduceHook, frozen=True, kw_only=True):
    """`default_hooks.fp16_compress_hook`.

    >>> Fp16Compress().reduce_dtype
    'float16'

    A gradient beyond 65,504 is infinite in float16, and so is its mean on every rank.
    """

    name = "fp16_compress_hook"

    @property
    def reduce_dtype(self) -> str:
        """Half of float32."""
        return "float16"


class AverageSide(HookSide):
    """The mean over the group, in some dtype.

    Each member divides before the sum and not after it: a sum of float16 gradients of 1,024 ranks
    could be infinite, where their mean is not.
    """

    def __init__(self, group: Group, dtype: str) -> None:
        """Work in that dtype."""
        super().__init__(group)
        self._dtype = dtype

    def mean(self, bucket: Bucket) -> Generator[Part, None, Array]:
        """Divide, and sum up."""
        found = yield from average(self.group, bucket.flat.astype(self._dtype))
        return found.astype(bucket.flat.dtype)


def average(group: Group, flat: Array) -> Generator[Part, None, Array]:
    """Return the mean over a group: what each member has is divided before it is summed."""
    return (yield from sum_over(group, flat / flat.dtype.type(group.size)))
