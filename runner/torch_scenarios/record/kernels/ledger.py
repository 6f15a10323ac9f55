"""The bytes that a rank holds in tensors without memory, by kind, and the most of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
)

#: what an allocator of GPU memory rounds each tensor up to (torch's caching allocator)
ROUNDED = 512


class HeldMemory:
    """What is held now, and was held at most since the last step of an optimizer ended.

    A storage counts from the operator that makes it until it is dropped, or is resized to nothing,
    as FSDP2 does. What is no parameter, gradient or state of an optimizer is `activations`: what a
    backward pass needs, what a kernel gives out, the buffers of communication.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self.held: dict[str, int] = dict.fromkeys(
            (PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS), 0
        )
        self.most: dict[str, int] = dict(self.held)
        self._total = self._most = 0
        #: the address of a storage -> its kind, its bytes, and what says that it is dropped
        self._known: dict[int, tuple[str, int, Any]] = {}

    def add(self, tensors: Iterable[Any]) -> None:
        """Hold the memory of tensors that an operator gave out."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            at = storage._cdata
            if at not in self._known:
                size = _rounded(storage.nbytes())
                self._known[at] = (ACTIVATIONS, size, weakref.ref(storage, self._dropping(at)))
                self._change(ACTIVATIONS, size)

    def become(self, kind: str, tensors: Iterable[Any]) -> None:
        """Count the memory of tensors among a kind."""
        for tensor in tensors:
            at = tensor.untyped_storage()._cdata
            known = self._known.get(at)
            if known is not None and known[0] != kind:
                before, size, ref = known
                self._known[at] = (kind, size, ref)
                self.held[before] -= size
                self.held[kind] += size

    def resized(self, storage: Any) -> None:
        """Know the size that a storage has now."""
        known = self._known.get(storage._cdata)
        if known is not None:
            kind, before, ref = known
            size = _rounded(storage.nbytes())
            self._known[storage._cdata] = (kind, size, ref)
            self._change(kind, size - before)

    def begin(self) -> dict[str, int]:
        """Return what was held at most, and begin anew with what is held now."""
        most, self.most, self._most = self.most, dict(self.held), self._total
        return most

    def _dropping(self, at: int) -> Callable[[Any], None]:
        def dropped(ref: Any) -> None:
            known = self._known.get(at)
            if known is not None and known[2] is ref:
                del self._known[at]
                self._change(known[0], -known[1])

        return dropped

    def _change(self, kind: str, size: int) -> None:
        self.held[kind] += size
        self._total += size
        if self._total > self._most:
            self._most, self.most = self._total, dict(self.held)


def _rounded(size: int) -> int:
    return -(-size // ROUNDED) * ROUNDED
