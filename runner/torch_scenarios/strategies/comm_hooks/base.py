"""What a communication hook is, and one rank's side of it.

`DistributedDataParallel.register_comm_hook(state, hook)` hands each bucket of gradients to a hook,
as they were computed, and takes what it returns for their mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from math import prod
from typing import Any, ClassVar

from msgspec import Struct

from torch_scenarios.modules.base import Array, Declared
from torch_scenarios.operations.base import Caller, Group, Part

#: where torch has its hooks
AT = "torch.distributed.algorithms.ddp_comm_hooks"


class Bucket(Struct, frozen=True, kw_only=True):
    """The gradients that travel together, flattened one behind the other, in float32.

    Its number among all buckets is the order in which they get ready. `exact` is what they are in
    float64, where the hook asks for it (:attr:`HookSide.rounds`).

    >>> import numpy as np
    >>> bucket = Bucket(number=0, buckets=1, shapes=((2,), (1, 2)), flat=np.arange(4.0))
    >>> [each.shape for each in bucket.gradients(bucket.flat)], bucket.is_last
    ([(2,), (1, 2)], True)
    """

    number: int
    buckets: int
    shapes: tuple[tuple[int, ...], ...]
    flat: Array
    exact: Array | None = None

    @property
    def is_last(self) -> bool:
        """Whether a backward ends with it."""
        return self.number == self.buckets - 1

    def gradients(self, flat: Array) -> list[Array]:
        """Return the gradients as views of a flat array, each in its shape."""
        found, at = [], 0
        for shape in self.shapes:
            size = prod(shape)
            found.append(flat[at : at + size].reshape(shape))
            at += size
        return found


class Hook(Declared, frozen=True):
    """One value of `comm_hook:`, by torch's name and arguments, which are its fields.

    A hook takes the place of the all_reduce of a bucket (`register_comm_hook`). What it returns is
    used as the mean, unchecked: one that forgets to divide trains with gradients that are too
    large.
    """

    name: ClassVar[str]

    @property
    def reduce_dtype(self) -> str:
        """The dtype in which gradients travel."""
        return "float32"

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it names."""
        return ()

    def find_mismatch(self, buckets: int, *, counts: bool) -> str | None:
        """Return why it is left out for so many buckets, or None.

        `counts` says whether a backward ends with the number of ranks that used each parameter.
        """
        return None

    @abstractmethod
    def register(self, real: Any, wrapped: Any, group: Any) -> None:
        """Let torch register it, in the worker; `group` is None or the model's own."""

    @abstractmethod
    def side(self, group: Group, caller: Caller, shared: dict[Any, Any]) -> HookSide:
        """Return one rank's side of it; `shared` is what the ranks of the model have in common."""


class HookSide(ABC):
    """One rank's side of a hook, with what it keeps from step to step.

    `mean` yields the calls for one bucket and returns what counts as its mean:

        found = yield from average(self.group, bucket.flat)
    """

    def __init__(self, group: Group) -> None:
        """Work in the group of the model."""
        self.group = group

    #: whether what came last is the mean over all ranks of the model
    of_all = True
    #: in words, why what it returns is not the mean; None where it is
    departure: str | None = None
    #: whether it ever makes more of what rounding leaves than a mean does
    rounds: ClassVar[bool] = False
    #: how far rounding may bring each element of what came last, in float64; None for a mean
    off: Array | None = None

    @abstractmethod
    def mean(self, bucket: Bucket) -> Generator[Part, None, Array]:
        """Make the calls for one bucket; return what stands for its mean."""
