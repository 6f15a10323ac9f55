"""How much an implementation lets pass, of what the semantics leave open.

The semantics are read as every correct implementation satisfies them. Other readings tell what
depends on the implementation: sends that are buffered, ranks that never leave a collective early,
and what one backend is known to do (:mod:`torch_scenarios.model.traits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from torch_scenarios.model.traits import Counts, Traits
from torch_scenarios.operations.base import Group

#: which works of a rank begin only once the one before is done: none, those of one group, all
Order: TypeAlias = Literal["free", "group", "rank"]


class Buffer(Struct, frozen=True, kw_only=True):
    """What leaves its sender before the receive is posted; None: any size, any number.

    `size_bytes` is the largest message, `messages` how many there may be between two ranks at once.
    That a send may wait, and that it may not, are both right (MPI 4.1, 3.5): "standard mode". So a
    program is read without a buffer, with one of any size, and with what a backend is known to
    have.

        rank 0   send x to 1   recv y from 1       no buffer: both wait in `send`, a deadlock
        rank 1   send x to 0   recv y from 0       with one: both pass, and the program completes

    >>> MPICH = Buffer(size_bytes=131_072)
    >>> MPICH.takes(4, under_way=0), MPICH.takes(1_000_000, under_way=0)
    (True, False)

    A message of objects has a size that is not known before it is pickled. Only a buffer that takes
    any size takes it for sure.

    >>> MPICH.takes(None, under_way=0), Buffer().takes(None, under_way=7)
    (False, True)
    """

    size_bytes: int | None = None
    messages: int | None = None

    def takes(self, size_bytes: int | None, under_way: int) -> bool:
        """Return whether it takes a message; of unknown size (None), if it takes any."""
        small = self.size_bytes is None or (
            size_bytes is not None and size_bytes <= self.size_bytes
        )
        return small and (self.messages is None or under_way < self.messages)


class Semantics(Struct, frozen=True, kw_only=True):
    """How much an implementation lets pass; by default what each correct one does.

    `strict`: a rank leaves a collective only once every member has entered, even those that it
    needs nothing from. `buffer`: a send that it takes does not wait for its receiver. `tags` tell
    messages apart. `order`: which works of a rank wait for one another. `standing`: the work (as a
    number among a rank's own) in whose call a rank's host stands for good. `backend`: whose option
    it is; groups that state another are read as the semantics say. `disputed`: no rank is held by a
    group on whose creation ranks disagree, nor by one that is created after it. `splits`: a rank
    passes the creation of a group once every rank of the world makes one. `counts`: the members of
    a group look for each other under what each has counted
    (:data:`torch_scenarios.model.traits.Counts`). `found`: who creates one under a name that it has
    used before finds the members of the earlier group.

    An option is a field here and no branch on a backend's name: what is asked is whether the
    program depends on it. A field is added where two correct implementations differ and a program
    can tell.

    >>> gloo = Semantics(buffer=Buffer(), backend="gloo")

    What is known of a backend holds on its own groups alone. A group that `new_group` made with
    `backend="nccl"` is read as the semantics say, in the same program.

    >>> def group(backend: str) -> Group:
    ...     return Group(key="g", name="g", ranks=(0, 1), timeout_s=30.0, backend=backend)
    >>> gloo.on(group("gloo")).buffer, gloo.on(group("nccl")).buffer
    (Buffer(size_bytes=None, messages=None), None)
    """

    strict: bool = False
    buffer: Buffer | None = None
    tags: bool = True
    order: Order = "free"
    standing: Mapping[int, int] = field(default_factory=dict)
    backend: str | None = None
    disputed: bool = False
    splits: bool = False
    counts: Counts = None
    found: bool = False

    def on(self, group: Group) -> Semantics:
        """Return the semantics that hold for a group's calls."""
        if group.backend is None or self.backend is None or group.backend == self.backend:
            return self
        return Semantics(strict=self.strict)


def find_semantics(backend: str, traits: Traits) -> Semantics:
    """Return how a backend takes a program for sure."""
    early = Buffer(size_bytes=traits.early_bytes, messages=traits.early_messages)
    return Semantics(
        buffer=early if traits.early_bytes else None,
        tags=traits.tags,
        order="group" if traits.enqueues else "free",
        backend=backend,
        splits=traits.splits_world,
        counts=traits.counts,
    )
