"""Which tensors asynchronous work still uses; to use one twice is a race: not for this engine.

The parts of a tensor that two operations use are compared by their first and last elements. Parts
that lie within each other without touching (columns of a matrix) count as touching: the other
engine looks closer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import Active, View, leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runner.reference.vector.works import Work


@dataclass(slots=True, eq=False)
class Flight:
    """A part of a tensor in the hands of a work: elements `low` to `high` on each of its ranks.

    `live` `[W]` tells on which ranks the work was not waited for yet.
    """

    work: Work
    writes: bool
    whole: bool
    low: Any
    high: Any
    live: NDArray[np.bool_]
    left: int


class Flights:
    """The flights of all ranks, by the name of the tensor."""

    def __init__(self, world_size: int) -> None:
        """Begin with none."""
        self._size = world_size
        self._by_name: dict[str, list[Flight]] = {}

    def writing(self, name: str, active: Active) -> list[Flight]:
        """Return the flights that write what a name holds on one of these ranks."""
        return [
            flight
            for flight in self._by_name.get(name, ())
            if flight.writes and bool(flight.live[active.index].any())
        ]

    def check_read(self, view: View) -> None:
        """Raise Beyond where an expression reads a part of a tensor that work writes."""
        self.check(view, writes=False)

    def check_look(self, name: str, active: Active) -> None:
        """Raise Beyond where something may be expected of a name while work writes it."""
        for flight in self._by_name.get(name, ()):
            if flight.writes and flight.live[active.index].any():
                leave(f"{name} is looked at while work writes it")

    def check(self, view: View, *, writes: bool) -> None:
        """Raise Beyond where a call on a part of a tensor races with work that uses it."""
        for flight in self._by_name.get(view.column.name, ()):
            if writes or flight.writes:
                self._compare(flight, view)

    def check_name(self, name: str, active: Active) -> None:
        """Raise Beyond where a name gets a new value while work uses the old one."""
        for flight in self._by_name.get(name, ()):
            if flight.live[active.index].any():
                leave(f"{name} changes while work uses it")

    def _compare(self, flight: Flight, view: View) -> None:
        low, high = bounds(view)
        rows = np.searchsorted(flight.work.active.ranks, view.active.ranks)
        rows[rows == flight.work.active.size] = 0
        theirs = [each if each.ndim == 0 else each[rows] for each in (flight.low, flight.high)]
        touches = (low <= theirs[1]) & (theirs[0] <= high) & flight.live[view.active.index]
        if touches.any():
            leave(f"{view.column.name} is in the hands of two operations")

    def take(self, work: Work, view: View, *, writes: bool) -> None:
        """Hand a part of a tensor over to a work."""
        if 0 in view.shape:
            return
        live = np.zeros(self._size, np.bool_)
        live[view.active.index] = True
        low, high = bounds(view)
        flight = Flight(
            work=work,
            writes=writes,
            whole=view.whole,
            low=low,
            high=high,
            live=live,
            left=view.active.size,
        )
        self._by_name.setdefault(view.column.name, []).append(flight)

    def give_back(self, work: Work, active: Active) -> None:
        """Take back what a work used on ranks that have waited for it."""
        for name in work.flown:
            flights = self._by_name.get(name, [])
            for flight in [each for each in flights if each.work is work]:
                before = flight.live[active.index]
                flight.left -= int(before.sum())
                flight.live[active.index] = False
                if not flight.left:
                    flights.remove(flight)


def check_together(used: Sequence[tuple[View, bool]]) -> None:
    """Raise Beyond where one call stores into a part that it uses twice; True is stored into."""
    if len(used) == 1 or not any(writes for _, writes in used):
        return
    by_name: dict[str, list[tuple[View, bool]]] = {}
    for view, writes in used:
        by_name.setdefault(view.column.name, []).append((view, writes))
    for name, parts in by_name.items():
        if len(parts) > 1 and any(writes for _, writes in parts) and _touching(parts):
            leave(f"{name} is used twice by one call")


def _touching(parts: Sequence[tuple[View, bool]]) -> bool:
    """Return whether parts of one tensor may touch on some rank, one of them stored into."""
    spans = [(*(each.reshape(-1) for each in bounds(view)), writes) for view, writes in parts]
    for at, (low, high, writes) in enumerate(spans):
        for other_low, other_high, written in spans[at + 1 :]:
            if (writes or written) and bool(((low <= other_high) & (other_low <= high)).any()):
                return True
    return False


def bounds(view: View) -> tuple[Any, Any]:
    """Return the first and last element of a part, counted flat: one for all ranks, or `[L]`."""
    places = view.places()
    if places.size == 0:
        return np.asarray(1), np.asarray(0)
    if len(places) == 1:
        return np.asarray(places.min()), np.asarray(places.max())
    flat = places.reshape(len(places), -1)
    return flat.min(axis=1), flat.max(axis=1)
