"""The weights of a rank, from use to use and from step to step.

A timeline has a point at each call of a module and before and after each step of an optimizer, and
the hash of every weight there, so that the ranks are compared at the points that all of them come
to. A rank may call a module where the others do not (an evaluation on rank 0): calls are counted
between the collectives of the ranks, which all of them make. A weight that is perturbed and put
back by a subtraction differs in its last bits: such weights are equal by some of their elements,
and unequal by their hashes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch_scenarios.record.values.format.event import WeightElements
from torch_scenarios.record.values.format.record import OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import Records
from torch_scenarios.record.values.roles import MESSAGES, Ranks

#: times the unit roundoff of single precision by which elements that are put back may differ
ROUNDED = 64 * 2.0**-24

#: where weights are compared: the turn; 0 at a module's call, 1 before a step, 2 after it; the
#: collectives of the ranks before a call; which of these
Point = tuple[int, int, int, int]


class WeightTimeline:
    """The weights of one rank, from point to point, next to those of some ranks."""

    def __init__(self, record: ValueRecord, ranks: Ranks) -> None:
        self.record = record
        self.events: list[tuple[Point, Any]] = []
        counts: Counter[tuple[int, int, int]] = Counter()
        calls = [
            each.at
            for each in record.calls
            if {*ranks} <= {*each.ranks} and each.operation not in MESSAGES
        ]
        both: list[tuple[int, int, Any]] = [(e.at, 0, e) for e in record.forwards]
        both += [(e.at, 1, e) for e in record.steps]
        for at, kind, event in sorted(both, key=lambda each: each[0]):
            where = (event.turn, kind, bisect_left(calls, at) if kind == 0 else 0)
            self.events.append(((*where, counts[where]), event))
            counts[where] += 1

    def walk(self) -> Iterator[tuple[Point, Any, dict[str, str]]]:
        """Yield each point with its event and the hash of every parameter there, by name."""
        names = {number: each.name for number, each in self.record.parameters.items()}
        state = {each.name: each.first for each in self.record.parameters.values()}
        for point, event in self.events:
            for number, details in event.changed.items():
                state[names[number]] = details
            yield point, event, state
            if isinstance(event, OptimizerStep):
                for number, details in event.after.items():
                    state[names[number]] = details
                yield (point[0], 2, *point[2:]), event, state


def join_timelines(records: Records, ranks: Ranks) -> Iterator[tuple[Point, dict[int, Any]]]:
    """Yield the points that all ranks come to, with the event and the weights of each."""
    lines = {rank: WeightTimeline(records[rank], ranks) for rank in ranks if rank in records}
    if len(lines) < 2:
        return
    common = set.intersection(*({p for p, *_ in line.walk()} for line in lines.values()))
    walks = {rank: line.walk() for rank, line in lines.items()}
    for point in sorted(common, key=order_of_point):
        found = {}
        for rank, walk in walks.items():
            for at, event, state in walk:
                if at == point:
                    found[rank] = (event, state)
                    break
        if len(found) < len(walks):
            return
        yield point, found


def order_of_point(point: Point) -> tuple[int, int, int, int]:
    """Return what points are sorted by: uses of a turn before its steps."""
    turn, kind, calls, count = point
    return turn, (0 if kind == 0 else 1), calls, 2 * count + (kind == 2)


def is_put_back_roundly(
    records: Records, names: Collection[str], events: Mapping[int, Any]
) -> bool:
    """Whether weights that differ on ranks at a step are the same there, but for rounding.

    As where each rank adds another perturbation and takes it off again: rounding is all over
    them, so that elements show it.
    """
    found = [
        [_read_last_elements(records[rank], name, e.at) for rank, e in events.items()]
        for name in names
    ]
    return all(map(_are_alike, found)) and any(len({*map(tuple, own)}) > 1 for own in found)


def _are_alike(elements: Sequence[Sequence[float]]) -> bool:
    """Whether some elements are those of other ranks, but for rounding."""
    size = max((abs(each) for own in elements for each in own), default=0.0)
    return (
        len({len(own) for own in elements}) == 1
        and all(max(own) - min(own) <= ROUNDED * size for own in zip(*elements, strict=True))
        and bool(elements[0])
    )


def _read_last_elements(record: ValueRecord, name: str, at: int) -> Sequence[float]:
    """Return elements of a weight that was written since the last step before an event."""
    number = record.names.get(name, -1)
    began = max((step.at for step in record.steps if step.at < at), default=-1)
    found: Sequence[float] = ()
    for each in record.of(WeightElements):
        if began < each.at < at:
            found = next((own for n, *own in each.elements if n == number), found)
    return found
