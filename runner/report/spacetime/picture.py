"""The whole picture: title, lanes, and what is wrong with who waits for whom."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from runner.report.spacetime.drawing import CLOSEST, Drawing
from runner.report.spacetime.glyphs import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.report.spacetime.drawing import Line
    from runner.report.spacetime.view import View
    from runner.timeline import Edge, Fault, Timeline

#: characters beside the lanes that stay free for text, whatever the number of ranks
LEAST_TEXT = 40

#: edges of the wait-for graph that are listed where they are no ring
MOST_EDGES = 8


def picture(timeline: Timeline, view: View) -> list[Line]:
    """Return the lines of the picture."""
    lines: list[Line] = [_title(timeline), []]
    lanes = _lanes(timeline, view)
    if any(timeline.lanes[lane].spans for lane in lanes):
        lines += Drawing(timeline, lanes, view).lines()
    else:
        lines.append([Piece("no step is taken", "dim")])
    left_out = len(timeline.lanes) - len(lanes)
    if left_out and view.ranks is None:
        lines += [[], [Piece(f"… {left_out} more ranks: --ranks chooses which are drawn", "dim")]]
    rings: set[str] = set()
    for fault in timeline.faults:
        ring = _ring(timeline, fault)
        lines += [[], *_explained(fault, "" if ring in rings else ring, view.width)]
        rings.add(ring)
    return lines


def _title(timeline: Timeline) -> Line:
    how = "predicted" if timeline.witness == "predicted" else f"observed on {timeline.backend}"
    return [
        Piece(f"{timeline.file}::{timeline.case}", "strong"),
        Piece(f"  {how}: ", "dim"),
        Piece(timeline.outcome, "plain" if timeline.outcome == "completes" else "stuck"),
    ]


def _lanes(timeline: Timeline, view: View) -> list[int]:
    """Return the lanes to draw: those asked for, or as many as fit, first those at fault."""
    if view.ranks is not None:
        return [at for at, lane in enumerate(timeline.lanes) if lane.rank in view.ranks]
    most = max(2, (view.width - LEAST_TEXT) // CLOSEST)
    if len(timeline.lanes) <= most:
        return list(range(len(timeline.lanes)))
    groups = (
        {rank for fault in timeline.faults for rank in fault.odd},
        {rank for edge in timeline.edges if edge.cycle for rank in (edge.waiter, edge.peer)},
        {rank for meeting in timeline.meetings for rank in meeting.missing},
        {rank for fault in timeline.faults for rank in fault.ranks},
        {lane.rank for lane in timeline.lanes},
    )
    kept = set(list(dict.fromkeys(rank for group in groups for rank in sorted(group)))[:most])
    return [at for at, lane in enumerate(timeline.lanes) if lane.rank in kept]


# ---------------------------------------------------------------------------- what is wrong


def _explained(fault: Fault, ring: str, width: int) -> Iterator[Line]:
    """Yield a diagnosis: its name, the ring of those who wait, its clauses."""
    yield [Piece(fault.name, "stuck"), Piece(f"  {ring}" if ring else "", "stuck")]
    for clause in _clauses(fault.prose):
        for line in textwrap.wrap(clause, max(40, width - 2), subsequent_indent="  "):
            yield [Piece(f"  {line}")]


def _clauses(prose: str) -> list[str]:
    clauses = prose.split("; ")
    return [f"{clause};" for clause in clauses[:-1]] + clauses[-1:]


def _ring(timeline: Timeline, fault: Fault) -> str:
    """Return `  0 → 1 → 0`, the ranks of a ring in which each waits for the next; else nothing."""
    after = _successors(
        edge for edge in timeline.edges if edge.cycle and edge.waiter in fault.ranks
    )
    start = min(after, default=-1)
    ring, rank = [start], after.get(start)
    while rank is not None and rank != start and rank not in ring:
        ring.append(rank)
        rank = after.get(rank)
    if rank != start or len(ring) == 1:
        return ""
    return " → ".join(map(str, [*ring, start]))


def _successors(edges: Iterator[Edge]) -> dict[int, int]:
    found: dict[int, int] = {}
    for edge in edges:
        found.setdefault(edge.waiter, edge.peer)
    return found
