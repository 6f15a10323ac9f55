"""What stands beside a row: where in the file, which step, who waits for whom, what it left."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from runner.report.prose import milliseconds
from runner.report.spacetime.glyphs import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runner.report.spacetime.rows import Row
    from runner.timeline import Span, Timeline

#: seconds from which it is said that a rank came late, or was busy
NOTED_S = 0.05

#: labels that a row names one by one; more are told by their operation
MOST_LABELS = 2

#: lines of the file that a row names one by one
MOST_LINES = 2


def gutter(spans: Sequence[Span]) -> str:
    """Return the lines of the file that a row's steps stand on."""
    lines = sorted({span.line for span in spans if span.line is not None})
    if len(lines) > MOST_LINES:
        return f"{lines[0]}-{lines[-1]}"
    return ",".join(map(str, lines))


def beside(timeline: Timeline, row: Row) -> list[Piece]:
    """Return the text beside a row; nothing where no step is drawn in it."""
    spans = {lane: timeline.lanes[lane].spans[row.nodes[lane][1]] for lane in _senders_first(row)}
    if not spans:
        return []
    pieces = [Piece(_label(list(spans.values()), met=bool(row.arrows or row.bars)))]
    iterations = dict.fromkeys(span.iteration for span in spans.values() if span.iteration)
    if iterations:
        told = " and ".join(", ".join(map(str, values)) for values in iterations)
        pieces.append(Piece(f"  iteration {told}", "dim"))
    pieces += [Piece(f"  {text}", "dim") for text in _elsewhere(list(spans.values()))]
    raised = dict.fromkeys(span.raised for span in spans.values() if span.raised)
    pieces += [Piece(f"  raises {words}", "raised") for words in raised]
    if timeline.witness == "observed":
        pieces += [Piece(f"  {text}", "dim") for text in _late(timeline, spans)]
    return pieces + _waiting(timeline, spans)


def _late(timeline: Timeline, spans: Mapping[int, Span]) -> Iterator[str]:
    """Yield which rank kept the others of a row waiting, or how long a rank was busy alone."""
    begun = {timeline.lanes[lane].rank: span.start_s for lane, span in spans.items()}
    spread = max(begun.values()) - min(begun.values())
    if spread >= NOTED_S and all(span.meetings for span in spans.values()):
        late = max(begun, key=begun.__getitem__)
        yield f"rank {late} came {milliseconds(spread)} after the first"
    took = [s.end_s - s.start_s for s in spans.values() if s.end_s is not None and not s.meetings]
    if took and max(took) >= NOTED_S:
        yield f"took {milliseconds(max(took))}"


def _elsewhere(spans: Sequence[Span]) -> list[str]:
    """Return the places of steps that `use` took from other files: `ring.yaml:16,18`."""
    places = sorted({s.place for s in spans if s.line is None and s.place is not None})
    files: dict[str, list[str]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        files.setdefault(file, []).append(line)
    return [f"{file}:{','.join(lines)}" for file, lines in files.items()]


def _senders_first(row: Row) -> list[int]:
    ends = [arrow.source for arrow in row.arrows] + [arrow.target for arrow in row.arrows]
    return [lane for lane in dict.fromkeys((*ends, *sorted(row.nodes))) if lane in row.nodes]


def _label(spans: Sequence[Span], *, met: bool) -> str:
    labels = list(dict.fromkeys(span.label for span in spans))
    if len(labels) == 1:
        return labels[0]
    if met or len(labels) > MOST_LABELS:
        labels = list(dict.fromkeys(_short(span) for span in spans))
    return (" / " if met else ", ").join(labels)


def _short(span: Span) -> str:
    """Return the operation's name, unless the author gave the step one."""
    if span.operation is not None and span.label.startswith(span.operation):
        return span.operation
    return span.label


def _waiting(timeline: Timeline, spans: Mapping[int, Span]) -> list[Piece]:
    """Return for whom the stuck ranks of a row wait, where a phrase can say it."""
    stuck = sorted(timeline.lanes[lane].rank for lane, span in spans.items() if span.stuck)
    if not stuck or any(span.state == "running" for span in spans.values()):
        return []
    waits: dict[str, list[int]] = {}
    for waiter in stuck:
        edges = [edge for edge in timeline.edges if edge.waiter == waiter]
        if edges:
            last = "and" if edges[0].sure else "or"
            whom = named([edge.peer for edge in edges], last)
            waits.setdefault(f"{whom} {edges[0].because}", []).append(waiter)
    if len(waits) == 1:
        return [Piece(f"  waits for {next(iter(waits))}", "stuck")]
    return [Piece("  stuck", "stuck")]


def values_of(values: Mapping[int, Mapping[str, str]]) -> list[tuple[str, list[int]]]:
    """Return each value as `x = [3, 3]` with the ranks that hold it; `values` are by rank."""
    held: dict[tuple[str, str], list[int]] = {}
    for rank, own in sorted(values.items()):
        for name, text in own.items():
            held.setdefault((name, text), []).append(rank)
    order = list(dict.fromkeys(name for name, _ in held))
    rows = sorted(held.items(), key=lambda item: (order.index(item[0][0]), item[1]))
    return [(f"{name} = {text}", ranks) for (name, text), ranks in rows]


def named(ranks: Iterable[int], last: str = "and") -> str:
    """Return `rank 3`, `ranks 0 and 2`, `ranks 0-3 and 7`; `last` stands before the last."""
    parts = []
    numbered = enumerate(sorted(set(ranks)))
    for _, run in groupby(numbered, key=lambda item: item[1] - item[0]):
        members = [rank for _, rank in run]
        few = len(members) <= 2  # noqa: PLR2004 -- a pair is no range
        parts += [str(r) for r in members] if few else [f"{members[0]}-{members[-1]}"]
    if len(parts) == 1 and "-" not in parts[0]:
        return f"rank {parts[0]}"
    before = ", ".join(parts[:-1])
    return f"ranks {before} {last} {parts[-1]}" if before else f"ranks {parts[0]}"
