"""Which nodes and lines share a row of the diagram, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from torch_scenarios.timeline import At, Match, Timeline, ends_of
from torch_scenarios.timeline.build import columns_of

# What is asked of a picture: how wide, which ranks and steps, with values or without.

#: steps that are all drawn; of more, unless others are asked for, the first and the last
MOST, FIRST, LAST = 40, 12, 18


class NoStepsError(ValueError):
    """The picture has none of the steps that are asked for.

    >>> PictureView(steps=(9, None)).choose_steps(3)
    Traceback (most recent call last):
        ...
    torch_scenarios.report.diagram.layout.NoStepsError: no step is drawn: ...
    """


class PictureView(Struct, frozen=True, kw_only=True):
    """`width` in characters; `ranks` None: as many as fit; `steps` from, to, from 1, both in.

    >>> sorted(PictureView(steps=(2, None)).choose_steps(4))
    [1, 2, 3]
    """

    width: int = 100
    values: bool = False
    ranks: tuple[int, ...] | None = None
    steps: tuple[int | None, int | None] | None = None

    def choose_steps(self, count: int) -> frozenset[int]:
        """Return which of `count` steps are drawn, numbered from 0. Raises NoStepsError."""
        if self.steps is not None:
            first, last = self.steps
            found = range(max(first or 1, 1) - 1, count if last is None else min(last, count))
            if not found:
                message = f"no step is drawn: the picture has steps 1 to {count}"
                raise NoStepsError(message)
            return frozenset(found)
        if count <= MOST:
            return frozenset(range(count))
        return frozenset(range(FIRST)) | frozenset(range(count - LAST, count))


# In which order the steps of all ranks are drawn: as the file has them, as far as that is true.
#
# Time goes downwards. Ranks that take one step of the file are drawn side by side, members of a
# collective and the ends of a blocking message always, and nothing is drawn before what it needs.
# Where ranks cross so that no order keeps all of it, one call is drawn alone and its line later.

#: spans that can only be drawn together
Unit = tuple["At", ...]


# Two ranks may take the steps of a file in ways that no order from top to bottom can show.
#
#     rank 0   send a to 1 (line 3)      recv b from 1 (line 4)
#     rank 1   send b to 0 (line 3)      recv a from 0 (line 4)
#
# Line 3 is drawn as one row, line 4 as the next, and each arrow goes from the one down to the
# other. Were the ends of a message drawn side by side, as those of a blocking one are, row 3 would
# have to be above row 4 for rank 0 and below it for rank 1. So a line is drawn in one row if that
# can be, and in several where it cannot: no arrow ever goes upwards.
def order_spans(timeline: Timeline, lanes: Sequence[int]) -> list[list[At]]:
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
        for match in timeline.matches:
            self._constrain(match)
        self.depths = columns_of(
            [len(lane.spans) for lane in timeline.lanes], self.steps.values(), ()
        )

    def _constrain(self, match: Match) -> None:
        spans = [at for at in match.spans if at[0] in self.heads]
        if match.kind != "message":
            self._join(spans)
        elif len(spans) > 1:
            if match.completed[1] == spans[1] and not self._crosses(match):
                self._join(spans)
            else:
                self.needs.setdefault(match.completed[1], []).append(spans[0])

    def _crosses(self, match: Match) -> bool:
        """Whether both ends are steps of one rank, the send not waiting for its receiver.

        All ranks may then send before they receive: the ends of a message cannot stand together.
        """
        if match.completed[0] == match.spans[0]:
            return False
        sends, receives = (
            {lane for lane, _ in self.steps[self._instance(at)]} for at in match.spans
        )
        return not sends.isdisjoint(receives)

    def _join(self, spans: list[At]) -> None:
        merged = list(dict.fromkeys(other for at in spans for other in self.units.get(at, [at])))
        for at in merged:
            self.units[at] = merged

    def run(self) -> list[list[At]]:
        found = []
        while any(self.heads[lane] < self.lengths[lane] for lane in self.heads):
            group = self._choose_next()
            for lane, position in group:
                self.heads[lane] = position + 1
            found.append(sorted(group))
        return found

    def _choose_next(self) -> list[At]:
        """Return what is drawn next: the step that comes first in the program, where it can."""
        heads = [at for at in self.heads.items() if at[1] < self.lengths[at[0]]]
        units = {id(unit): unit for unit in (self.units.get(at, [at]) for at in heads)}
        ready = [unit for unit in units.values() if self._is_ready(unit)]
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

    def _is_ready(self, unit: list[At]) -> bool:
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


# Which nodes and lines share a row of the picture, so that nothing is drawn over anything else.
#
# A row has *nodes* (a rank takes a step), *bars* (a collective, over its members) and *arrows* (a
# message). A line may pass a rank that takes no step in that row, never one that does.


class Bar(Struct, frozen=True, kw_only=True):
    """A collective or a creation over `lanes`; `missing` are lanes that had to come and did not.

    >>> bar = Bar(lanes=(0, 1), missing=(3,), complete=False)
    >>> bar.extent
    (0, 3)

        ●━━━●───┼╌╌╌?       lanes 0 and 1 came, 2 is not a member, 3 did not come
    """

    lanes: tuple[int, ...]
    missing: tuple[int, ...]
    complete: bool

    @property
    def extent(self) -> tuple[int, int]:
        """The outermost lanes."""
        return min((*self.lanes, *self.missing)), max((*self.lanes, *self.missing))


class Arrow(Struct, frozen=True, kw_only=True):
    """A message from lane to lane; `missing` is the lane whose end of it never came, if one.

    >>> Arrow(name="world:2>0#0:0", source=2, target=0).extent
    (0, 2)
    >>> Arrow(name="world:2>0#0:?0", source=2, target=0, missing=0).complete
    False
    """

    name: str
    source: int
    target: int
    missing: int | None = None

    @property
    def complete(self) -> bool:
        """Whether both ends came."""
        return self.missing is None

    @property
    def extent(self) -> tuple[int, int]:
        """The outer lanes."""
        return min(self.source, self.target), max(self.source, self.target)


class Row(Struct, kw_only=True):
    """One line of the picture.

    >>> row = Row(arrows=[Arrow(name="a", source=0, target=2)])
    >>> row.takes_node(1), row.takes_node(3)
    (False, True)
    >>> row.takes_arrow(Arrow(name="b", source=2, target=0))
    True

    A line passes no node, for a reader would take the rank for one that takes part. The opposite
    arrow may share the way: the line then has two heads.
    """

    nodes: dict[int, At] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def takes_bar(self, bar: Bar) -> bool:
        """Return whether a bar fits: nothing else is drawn between its ends."""
        low, high = bar.extent
        return not any(low <= lane <= high for lane in self.nodes) and all(
            high < left or right < low for left, right in self._extents()
        )

    def takes_node(self, lane: int) -> bool:
        """Return whether a node fits: no line passes or touches its lane."""
        return not any(low <= lane <= high for low, high in self._extents())

    def takes_arrow(self, arrow: Arrow) -> bool:
        """Return whether an arrow fits: it passes no node, and shares its way with no other line.

        Only the opposite arrow may share it: the line then has two heads.
        """
        low, high = arrow.extent
        if any(low < lane < high for lane in self.nodes):
            return False
        over = [other for other in self.arrows if other.extent == arrow.extent]
        if over:
            return [(a.target, a.complete) for a in over] == [(arrow.source, arrow.complete)]
        return all(high <= left or right <= low for left, right in self._extents())

    def _extents(self) -> Iterator[tuple[int, int]]:
        yield from (bar.extent for bar in self.bars)
        yield from (arrow.extent for arrow in self.arrows)


class RowLayout:
    """Makes the rows of one group of spans after the other, of some lanes of a timeline.

        a ring of 4 in one step          ●──▶●──▶●──▶●         three arrows side by side
                                         ◀───────────●         the fourth passes them in a row below

    The longest lines come last: short ones fit next to each other, and a long one needs a row
    anyway.
    """

    def __init__(self, timeline: Timeline, lanes: Sequence[int]) -> None:
        """Know every match by the spans that begin and complete it."""
        self._lanes = set(lanes)
        self._lane_of = {timeline.lanes[lane].rank: lane for lane in lanes}
        self._placed: set[At] = set()
        self._matches: dict[At, dict[str, Match]] = {}
        for match in timeline.matches:
            for at in (*match.spans, *match.completed):
                self._matches.setdefault(at, {})[match.name] = match

    def skip(self, group: Iterable[At]) -> None:
        """Let a group of spans count as drawn."""
        self._placed.update(group)

    def rows(self, group: Sequence[At]) -> list[Row]:
        """Return the rows of a group: bars first, then arrows, then those who stand alone."""
        self.skip(group)
        nodes = {lane: (lane, position) for lane, position in group}
        met = {name: m for at in group for name, m in self._matches.get(at, {}).items()}
        bars, arrows = list(self._bars(met.values(), group)), self._arrows(met.values(), group)
        rows = [Row()]
        for bar in sorted(bars, key=lambda bar: bar.extent):
            row = _row(rows, [row for row in rows if row.takes_bar(bar)])
            row.bars.append(bar)
            row.nodes |= {lane: nodes.pop(lane) for lane in bar.lanes if lane in nodes}
        for arrow in sorted(arrows, key=_length):
            row = _row(rows, [row for row in rows if row.takes_arrow(arrow)], arrow)
            row.arrows.append(arrow)
            row.nodes |= {lane: nodes.pop(lane) for lane in arrow.extent if lane in nodes}
        for lane, at in nodes.items():
            _row(rows, [row for row in rows if row.takes_node(lane)]).nodes[lane] = at
        return rows

    def _bars(self, met: Iterable[Match], group: Sequence[At]) -> Iterator[Bar]:
        """Yield the bars of the collectives whose last member is in the group."""
        for match in met:
            spans = [at for at in match.spans if at[0] in self._lanes]
            if match.kind == "message" or not self._ends(spans, group):
                continue
            missing = (self._lane_of.get(rank) for rank in match.missing)
            bar = Bar(
                lanes=tuple(lane for lane, _ in spans),
                missing=tuple(lane for lane in missing if lane is not None),
                complete=match.complete,
            )
            if len(bar.lanes) + len(bar.missing) > 1:
                yield bar

    def _arrows(self, met: Iterable[Match], group: Sequence[At]) -> Iterator[Arrow]:
        """Yield the messages whose last end is in the group, and those that never have one."""
        for match in met:
            ends = ends_of(match.name)
            if ends is None or ends[0] not in self._lane_of or ends[1] not in self._lane_of:
                continue
            last = [match.spans[0], *match.completed[1:]]
            if self._ends(last, group):
                yield Arrow(
                    name=match.name,
                    source=self._lane_of[ends[0]],
                    target=self._lane_of[ends[1]],
                    missing=self._lane_of[match.missing[0]] if match.missing else None,
                )

    def _ends(self, spans: Sequence[At], group: Sequence[At]) -> bool:
        """Return whether all of the spans are drawn once the group is, and not before."""
        return self._placed.issuperset(spans) and not set(spans).isdisjoint(group)


def _length(arrow: Arrow) -> tuple[int, int, int]:
    low, high = arrow.extent
    return high - low, low, arrow.source


def _row(rows: list[Row], fitting: list[Row], arrow: Arrow | None = None) -> Row:
    """Return the first row that fits, best one where an arrow ends at a node; a new one if none."""
    ends = set(arrow.extent) if arrow else set()
    if not fitting:
        rows.append(Row())
        return rows[-1]
    return max(fitting, key=lambda row: len(ends & row.nodes.keys()))


# The rows of the steps that are drawn, and where others are left out.

#: rows of one step beyond which further messages are only counted
MOST_ROWS = 24


class Block(Struct, kw_only=True):
    """Steps that are drawn, after steps that are not; `number` counts the first of these.

    `more` messages of the last step are left out.
    """

    number: int = 0
    skipped: list[list[At]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    more: int = 0


def blocks(timeline: Timeline, lanes: Sequence[int], view: PictureView) -> list[Block]:
    """Return the steps that a view shows, in rows; nothing is packed that is not drawn.

    Raises NoStepsError where it shows none of them.
    """
    groups = order_spans(timeline, lanes)
    packing = RowLayout(timeline, lanes)
    found = [Block()]
    chosen = view.choose_steps(len(groups))
    for number, group in enumerate(groups):
        if number not in chosen:
            packing.skip(group)
            if found[-1].rows or not found[-1].skipped:
                found.append(Block(number=number + 1))
            found[-1].skipped.append(group)
            continue
        if found[-1].more:
            found.append(Block())
        rows = packing.rows(group)
        kept = [row for nth, row in enumerate(rows) if nth < MOST_ROWS or row.nodes]
        found[-1].rows += kept
        found[-1].more = sum(len(row.arrows) for row in rows if row not in kept)
    return found
