"""Logical time: a column for every span, so that who met stands together.

    rank 0   a   S───┐   M         S a blocking send and R its receive: one column
    rank 1   b   c   R   M         M a collective: one column

The earliest columns that keep the order on every lane. Where ranks cross so that no order keeps
all of it (asynchronous calls in two groups, started in opposite order), the first to come stands
alone, and the rest is as before.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.timeline.model import At


def columns_of(
    lengths: Sequence[int], together: Iterable[Sequence[At]], not_before: Iterable[tuple[At, At]]
) -> list[list[int]]:
    """Return the column of every span, by lane and position; `lengths` are the spans of each lane.

    The spans of each item of `together` share a column; the second span of each item of
    `not_before` stands in no earlier column than the first.
    """
    return _Placing(lengths, together, not_before).run()


class _Placing:
    """The work of placing: each lane has a head, the first of its spans that has no column."""

    def __init__(
        self,
        lengths: Sequence[int],
        together: Iterable[Sequence[At]],
        not_before: Iterable[tuple[At, At]],
    ) -> None:
        self.lengths = lengths
        self.heads = [0] * len(lengths)
        self.columns = [[-1] * length for length in lengths]
        self.units = _units(together)
        self.after: dict[At, list[At]] = defaultdict(list)
        self.sources: dict[At, list[At]] = defaultdict(list)
        for first, second in not_before:
            self.after[first].append(second)
            self.sources[second].append(first)
        #: what the unit of a span still waits for: members that are no heads, sources not placed
        self.lacking: dict[int, int] = {}
        for unit in {id(unit): unit for unit in self.units.values()}.values():
            self.lacking[id(unit)] = len(unit) + sum(len(self.sources.get(at, ())) for at in unit)
        self.ready: deque[list[At]] = deque()

    def run(self) -> list[list[int]]:
        for lane in range(len(self.lengths)):
            self._arrive(lane)
        while True:
            while self.ready:
                self._place(self.ready.popleft())
            waiting = [
                (head, lane) for lane, head in enumerate(self.heads) if head < self.lengths[lane]
            ]
            if not waiting:
                return self.columns
            head, lane = min(waiting)
            self._part((lane, head))

    def _unit(self, at: At) -> list[At]:
        unit = self.units.get(at)
        if unit is None:
            unit = self.units[at] = [at]
            self.lacking[id(unit)] = 1 + len(self.sources.get(at, ()))
        return unit

    def _arrive(self, lane: int) -> None:
        if self.heads[lane] < self.lengths[lane]:
            self._satisfy((lane, self.heads[lane]))

    def _satisfy(self, at: At) -> None:
        unit = self._unit(at)
        self.lacking[id(unit)] -= 1
        if self.lacking[id(unit)] == 0:
            self.ready.append(unit)

    def _place(self, unit: list[At]) -> None:
        column = max(self._earliest(at) for at in unit)
        for lane, position in unit:
            self.columns[lane][position] = column
            self.heads[lane] = position + 1
        for at in unit:
            for other in self.after.get(at, ()):
                if self.columns[other[0]][other[1]] < 0:
                    self._satisfy(other)
        for lane, _ in unit:
            self._arrive(lane)

    def _earliest(self, at: At) -> int:
        lane, position = at
        before = self.columns[lane][position - 1] if position else -1
        sources = (self.columns[other][place] for other, place in self.sources.get(at, ()))
        return max(before + 1, *sources, 0)

    def _part(self, at: At) -> None:
        """Let a head go alone, because nothing else can move."""
        unit = self._unit(at)
        open_sources = [
            source for source in self.sources.get(at, ()) if self.columns[source[0]][source[1]] < 0
        ]
        unit.remove(at)
        self.lacking[id(unit)] -= len(open_sources)
        self.units[at] = alone = [at]
        if unit and self.lacking[id(unit)] == 0:
            self.ready.append(unit)
        self._place(alone)


def _units(together: Iterable[Sequence[At]]) -> dict[At, list[At]]:
    """Return the sets of spans that share a column, by span; sets that overlap are one."""
    units: dict[At, list[At]] = {}
    for spans in together:
        merged = list(dict.fromkeys(other for at in spans for other in units.get(at, (at,))))
        for at in merged:
            units[at] = merged
    return units
