"""The lanes of the picture with their rows, the lines of the file beside them, the legend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.report.spacetime.canvas import Canvas
from runner.report.spacetime.glyphs import ABSENT, Glyph, Piece, glyph_of
from runner.report.spacetime.order import ordered
from runner.report.spacetime.rows import Packing
from runner.report.spacetime.words import beside, gutter, named, values_of
from runner.report.spacetime.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runner.report.spacetime.rows import Row
    from runner.report.spacetime.view import View
    from runner.timeline import At, Span, Timeline

Line = list[Piece]

#: characters between two lanes: an arrow needs two, and many are no help
CLOSEST, WIDEST = 3, 10

#: characters that lanes leave to the text beside them, if it needs so many
ENOUGH_TEXT = 44

#: values that are shown of one step; more are counted
MOST_VALUES = 16

#: rows of one step beyond which further messages are only counted
MOST_ROWS = 24

_TITLE = "line"


@dataclass(slots=True, kw_only=True)
class _Block:
    """Steps that are drawn, after steps that are not; `number` counts the first of these."""

    number: int = 0
    skipped: list[list[At]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    more: int = 0


class Drawing:
    """Draws some lanes of a timeline."""

    def __init__(self, timeline: Timeline, lanes: Sequence[int], view: View) -> None:
        """Put steps into rows, and lanes as far apart as the width allows."""
        self._timeline, self._view, self._lanes = timeline, view, lanes
        self._blocks = self._packed()
        rows = [row for block in self._blocks for row in block.rows]
        self._left = max(len(_TITLE), *(len(gutter(self._spans(row))) for row in rows))
        texts = (sum(len(piece.text) for piece in beside(timeline, row)) for row in rows)
        room = view.width - self._left - 6 - min(max(texts, default=0), ENOUGH_TEXT)
        self._canvas = Canvas(lanes, max(CLOSEST, min(WIDEST, room // len(lanes))))
        self._room = view.width - self._left - self._canvas.width - 4
        self._legend: dict[Glyph, None] = {}
        self._begun = {
            at
            for meeting in timeline.meetings
            for at, end in zip(meeting.spans, meeting.completed, strict=True)
            if at != end
        }

    def lines(self) -> Iterator[Line]:
        """Yield the lines, from the ranks' numbers to the legend."""
        lanes = {lane: self._timeline.lanes[lane] for lane in self._lanes}
        heads = self._canvas.heads([lane.rank for lane in lanes.values()])
        yield [Piece(f"{_TITLE:>{self._left}}  {heads}", "dim")]
        if self._view.values:
            yield from self._beside(Piece("before the first step", "dim"))
            yield from self._values({lane.rank: lane.initial for lane in lanes.values()})
        for block in self._blocks:
            if block.skipped:
                yield from self._elided(block)
            for row in block.rows:
                yield from self._row(row)
            if block.more:
                yield from self._beside(Piece(f"… {block.more} more messages", "dim"))
        told = [f"{glyph.character} {glyph.legend}" for glyph in self._legend if glyph.legend]
        if told:
            yield []
            yield from self._legend_lines(told)

    def _legend_lines(self, told: list[str]) -> Iterator[Line]:
        room = self._view.width - self._left
        for line in wrapped([Piece(f"   {text}") for text in told], room):
            text = "".join(piece.text for piece in line).strip()
            yield [Piece(" " * (self._left + 2) + text, "dim")]

    # ------------------------------------------------------------------ which steps

    def _packed(self) -> list[_Block]:
        """Return the steps that are drawn, in rows; nothing is packed that is not drawn."""
        groups = ordered(self._timeline, self._lanes)
        packing = Packing(self._timeline, self._lanes)
        blocks = [_Block()]
        chosen = self._view.chosen(len(groups))
        for number, group in enumerate(groups):
            if number not in chosen:
                packing.skip(group)
                if blocks[-1].rows or not blocks[-1].skipped:
                    blocks.append(_Block(number=number + 1))
                blocks[-1].skipped.append(group)
                continue
            if blocks[-1].more:
                blocks.append(_Block())
            rows = packing.rows(group)
            kept = [row for nth, row in enumerate(rows) if nth < MOST_ROWS or row.nodes]
            blocks[-1].rows += kept
            blocks[-1].more = sum(len(row.arrows) for row in rows if row not in kept)
        return blocks

    def _spans(self, row: Row) -> list[Span]:
        return [self._timeline.lanes[lane].spans[at] for lane, at in row.nodes.values()]

    # ------------------------------------------------------------------ lines

    def _margin(self, text: str) -> Line:
        return [Piece(f"{text:>{self._left}}  ", "dim")]

    def _beside(self, *text: Piece) -> Iterator[Line]:
        """Yield lines of text beside lanes on which nothing happens."""
        for line in wrapped(text, self._room):
            yield [*self._margin(""), *self._canvas.passing(), Piece("  "), *line]

    def _row(self, row: Row) -> Iterator[Line]:
        glyphs = {
            lane: glyph_of(
                self._timeline.lanes[lane].spans[at[1]],
                self._timeline.lanes[lane],
                begun=at in self._begun,
            )
            for lane, at in row.nodes.items()
        }
        drawn = self._canvas.row(row, glyphs)
        self._legend |= dict.fromkeys(glyphs.values())
        if any(ABSENT.character in piece.text for piece in drawn):
            self._legend[ABSENT] = None
        self._go_on(row.nodes.values())
        first, *more = wrapped(beside(self._timeline, row), self._room)
        yield [*self._margin(gutter(self._spans(row))), *drawn, Piece("  "), *first]
        for line in more:
            yield from self._beside(Piece("  "), *line)
        if self._view.values:
            yield from self._values(
                {
                    self._timeline.lanes[lane].rank: self._timeline.lanes[lane].spans[at].values
                    for lane, at in row.nodes.values()
                }
            )

    def _go_on(self, spans: Iterable[At]) -> None:
        """Let lanes look as their ranks are after these steps."""
        for number, position in spans:
            lane = self._timeline.lanes[number]
            if lane.spans[position].stuck and lane.died is None:
                self._canvas.stick(number)
            elif position == len(lane.spans) - 1 and lane.ending in {"died", "raised"}:
                self._canvas.end(number)

    def _elided(self, block: _Block) -> Iterator[Line]:
        drawn = self._canvas.eliding()
        self._go_on(at for group in block.skipped for at in group)
        first, count = block.number, len(block.skipped)
        many = "1 more step" if count == 1 else f"{count} more steps"
        text = Piece(f"… {many}: --steps {first}:{first + count - 1}", "dim")
        yield [*self._margin("⋮"), *drawn, Piece("  "), text]

    def _values(self, values: Mapping[int, Mapping[str, str]]) -> Iterator[Line]:
        found = values_of(values)
        for text, ranks in found[:MOST_VALUES]:
            whose = "" if 1 < len(ranks) == len(values) else f"  {named(ranks)}"
            yield from self._beside(Piece(f"  {text}", "value"), Piece(whose, "dim"))
        if len(found) > MOST_VALUES:
            yield from self._beside(Piece(f"  … {len(found) - MOST_VALUES} more values", "dim"))
