"""The bytes that a rank holds in tensors without memory, by kind, and the most of a step."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
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

    What a compiled kernel makes has no memory as long as another one can make it anew, of storages
    that are held (:meth:`add_made_of`). It has once something else needs it (:meth:`keep`). Where
    what it is made of is dropped, the smaller of both is held on::

        gate = mm(x, w)        held: a product makes it
        s = silu(gate)         no memory: the backward pass makes it anew, of gate
        h = x + mm(y, v)       held as soon as the product is dropped, which is as large
        n = h.float()          no memory: h is held for it, which is half as large
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
        #: the address of a storage without memory -> the bytes that it would have, and the
        #: addresses of what it is made of; and which ones are made of an address
        self._unwritten: dict[int, tuple[int, set[int]]] = {}
        self._made_of: dict[int, set[int]] = {}
        #: numbers below 0, as addresses of what is held on for others -> its kind and its bytes
        self._held_on: dict[int, tuple[str, int]] = {}
        self._numbers = itertools.count(-1, -1)

    def add(self, tensors: Iterable[Any]) -> None:
        """Hold the memory of tensors that an operator gave out."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            at = storage._cdata
            if at not in self._known:
                size = _round_up(storage.nbytes())
                self._known[at] = (ACTIVATIONS, size, weakref.ref(storage, self._drop_function(at)))
                self._change(ACTIVATIONS, size)

    def add_made_of(self, sources: Iterable[Any], tensors: Iterable[Any]) -> None:
        """Know tensors that a compiled kernel made of others; they have no memory yet."""
        read = {each.untyped_storage()._cdata for each in sources}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            at = storage._cdata
            if at not in self._known:
                self._known[at] = (ACTIVATIONS, 0, weakref.ref(storage, self._drop_function(at)))
                self._unwritten[at] = (_round_up(storage.nbytes()), set())
            if at in self._unwritten:
                self._unwritten[at][1].update(read - {at})
                for source in read - {at}:
                    self._made_of.setdefault(source, set()).add(at)

    def keep(self, tensors: Iterable[Any]) -> None:
        """Hold the memory of what compiled kernels made among some tensors."""
        for tensor in tensors:
            self._write(tensor.untyped_storage()._cdata)

    def _write(self, at: int) -> None:
        """Hold the memory of a storage that had none."""
        size, sources = self._unwritten.pop(at, (0, set()))
        for source in sources:
            self._forget(source, at)
        if size:
            kind, held, ref = self._known[at]
            self._known[at] = (kind, held + size, ref)
            self._change(kind, size)

    def _forget(self, source: int, at: int) -> None:
        """Know that a storage does not depend on another one any more."""
        made = self._made_of.get(source, set())
        made.discard(at)
        if not made:
            self._made_of.pop(source, None)
            if source in self._held_on:
                kind, size = self._held_on.pop(source)
                self._change(kind, -size)

    def _drop(self, at: int) -> None:
        """Drop a storage; what is made of it is made of what that was made of, or of what is held.

        Where it was in memory, the smaller is: it, or all that is made of it.
        """
        kind, size, _ = self._known.pop(at)
        _, sources = self._unwritten.pop(at, (0, None))
        made = self._made_of.pop(at, set())
        if sources is None:
            self._change(kind, -size)
            if made and sum(self._unwritten[each][0] for each in made) <= size:
                for each in made:
                    self._write(each)
                return
            sources = set()
            if made:
                number = next(self._numbers)
                self._held_on[number] = kind, size
                self._change(kind, size)
                sources = {number}
        for each in made:
            own = self._unwritten[each][1]
            own.discard(at)
            own.update(sources)
            for source in sources:
                self._made_of.setdefault(source, set()).add(each)
        for source in sources:
            self._forget(source, at)

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

    def resize(self, storage: Any) -> None:
        """Know the size that a storage has now."""
        known = self._known.get(storage._cdata)
        if known is not None:
            self._write(storage._cdata)
            kind, before, ref = self._known[storage._cdata]
            size = _round_up(storage.nbytes())
            self._known[storage._cdata] = (kind, size, ref)
            self._change(kind, size - before)

    def begin(self) -> dict[str, int]:
        """Return what was held at most, and begin anew with what is held now."""
        most, self.most, self._most = self.most, dict(self.held), self._total
        return most

    def _drop_function(self, at: int) -> Callable[[Any], None]:
        def drop(ref: Any) -> None:
            known = self._known.get(at)
            if known is not None and known[2] is ref:
                self._drop(at)

        return drop

    def _change(self, kind: str, size: int) -> None:
        self.held[kind] += size
        self._total += size
        if self._total > self._most:
            self._most, self.most = self._total, dict(self.held)


def _round_up(size: int) -> int:
    return -(-size // ROUNDED) * ROUNDED


def tensors_among(values: Any) -> Iterator[Any]:
    """Yield the tensors among values, and in the lists and dicts among them."""
    for each in values:
        if isinstance(each, list | tuple):
            yield from tensors_among(each)
        elif isinstance(each, dict):
            yield from tensors_among(each.values())
        elif hasattr(each, "untyped_storage"):
            yield each
