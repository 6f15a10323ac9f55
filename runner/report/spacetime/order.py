"""In which order the steps of all ranks are drawn: as the file has them, as far as that is true.

Time goes downwards. Ranks that take one step of the file are drawn side by side, members of a
collective and the ends of a blocking message always, and nothing is drawn before what it needs.
Where ranks cross so that no order keeps all of it, one call is drawn alone and its line later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.timeline.columns import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.timeline import At, Meeting, Timeline

#: spans that can only be drawn together
Unit = tuple["At", ...]


def ordered(timeline: Timeline, lanes: Sequence[int]) -> list[list[At]]:
    """Return the spans of some lanes in groups: each group is drawn together, above the next."""
    return _Ordering(timeline, lanes).run()


class _Ordering:
    """Lists spans group by group; the head of a lane is its first span that is not listed."""

    def __init__(self, timeline: Timeline, lanes: Sequence[int]) -> None:
        self.timeline = timeline
        self.heads = dict.fromkeys(lanes, 0)
        self.lengths = {lane: len(timeline.lanes[lane].spans) for lane in lanes}
        self.units: dict[At, list[At]] = {}
        self.needs: dict[At, list[At]] = {}
        self.steps = _steps(timeline)
        for meeting in timeline.meetings:
            self._constrain(meeting)
        self.depths = columns_of(
            [len(lane.spans) for lane in timeline.lanes], self.steps.values(), ()
        )

    def _constrain(self, meeting: Meeting) -> None:
        spans = [at for at in meeting.spans if at[0] in self.heads]
        if meeting.kind != "message":
            self._join(spans)
        elif len(spans) > 1:
            if meeting.completed[1] == spans[1] and not self._crosses(meeting):
                self._join(spans)
            else:
                self.needs.setdefault(meeting.completed[1], []).append(spans[0])

    def _crosses(self, meeting: Meeting) -> bool:
        """Whether both ends are steps of one rank, the send not waiting for its receiver.

        All ranks may then send before they receive: the ends of a message cannot stand together.
        """
        if meeting.completed[0] == meeting.spans[0]:
            return False
        sends, receives = (
            {lane for lane, _ in self.steps[self._instance(at)]} for at in meeting.spans
        )
        return not sends.isdisjoint(receives)

    def _join(self, spans: list[At]) -> None:
        merged = list(dict.fromkeys(other for at in spans for other in self.units.get(at, [at])))
        for at in merged:
            self.units[at] = merged

    def run(self) -> list[list[At]]:
        found = []
        while any(self.heads[lane] < self.lengths[lane] for lane in self.heads):
            group = self._next()
            for lane, position in group:
                self.heads[lane] = position + 1
            found.append(sorted(group))
        return found

    def _next(self) -> list[At]:
        """Return what is drawn next: the step that comes first in the program, where it can."""
        heads = [at for at in self.heads.items() if at[1] < self.lengths[at[0]]]
        units = {id(unit): unit for unit in (self.units.get(at, [at]) for at in heads)}
        ready = [unit for unit in units.values() if self._ready(unit)]
        if not ready:
            alone = min(heads, key=lambda at: (at not in self.units, self._priority(at)))
            unit = self.units.get(alone, [alone])
            unit.remove(alone)
            self.units.pop(alone, None)
            self.needs.pop(alone, None)
            return [alone]
        first = min(ready, key=lambda unit: min(map(self._priority, unit)))
        steps = set(map(self._instance, first))
        return [at for unit in ready if steps & set(map(self._instance, unit)) for at in unit]

    def _ready(self, unit: list[At]) -> bool:
        return all(self.heads[at[0]] == at[1] for at in unit) and all(
            need in unit or self.heads[need[0]] > need[1]
            for at in unit
            for need in self.needs.get(at, ())
        )

    def _instance(self, at: At) -> tuple[int, tuple[int, ...]]:
        span = self.timeline.lanes[at[0]].spans[at[1]]
        return span.index, span.iteration

    def _priority(self, at: At) -> tuple[int, int, int]:
        return self.depths[at[0]][at[1]], self._instance(at)[0], at[0]


def _steps(timeline: Timeline) -> dict[tuple[int, tuple[int, ...]], list[At]]:
    """Return the spans of each step of the program."""
    steps: dict[tuple[int, tuple[int, ...]], list[At]] = {}
    for number, lane in enumerate(timeline.lanes):
        for position, span in enumerate(lane.spans):
            steps.setdefault((span.index, span.iteration), []).append((number, position))
    return steps
