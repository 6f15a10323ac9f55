"""The start of a scenario: where its ranks meet before step 1, or make their world once more.

A rank whose first step ends its process must not do so while a peer still connects to it. So every
rank says that its groups stand and that it holds what it holds, and the last one lets all go on:

    rank 0   world, groups, values | waits . . . | step 1
    rank 1   world, groups . . . . . . . values  | step 1

Where connections failed on some rank, all of them make a fresh world, under a fresh prefix of the
store: a connection that a machine lost is no property of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.execution.errors import kind_of
from runner.execution.mailbox import awaited
from runner.execution.orders import BEGUN

if TYPE_CHECKING:
    from runner.execution.mailbox import Store

#: how often the ranks of a scenario make their world before one says that it cannot
ATTEMPTS = 3
#: what a rank counts for whose connections failed; more than ranks can be
FAILED = 1 << 32
#: kinds of failure that a connection shows which was not made
UNCONNECTED = frozenset({"timeout", "peer_lost", "aborted"})
GO, AGAIN = b"go", b"again"


class Start:
    """The meeting of the ranks of one scenario, in one attempt at its world."""

    def __init__(self, store: Store, name: str, attempt: int, world_size: int) -> None:
        """Meet in `store`, under the scenario's name."""
        self._store = store
        self._name = name
        self._key = f"{name}/start/{attempt}"
        self._world_size = world_size

    def arrive(self, *, failed: bool = False) -> None:
        """Say that this rank is ready, or that its connections failed; waits for no rank."""
        arrived = self._store.add(f"{self._key}/ready", 1 + (FAILED if failed else 0))
        if arrived % FAILED < self._world_size:
            return
        if arrived < FAILED:
            self._store.set(f"{self._name}/{BEGUN}", b"1")
        self._store.set(f"{self._key}/go", GO if arrived < FAILED else AGAIN)

    def meet(self, *, failed: bool = False) -> bool:
        """Arrive, and wait for every rank; False where all are to make their world once more."""
        self.arrive(failed=failed)
        return awaited(self._store, f"{self._key}/go") == GO


def is_unconnected(error: BaseException) -> bool:
    """Return whether an error says that a connection could not be made."""
    return kind_of(error) in UNCONNECTED
