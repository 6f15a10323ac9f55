"""One row of the picture as characters: lanes, nodes, bars and arrows."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from runner.report.spacetime.glyphs import (
    ABSENT,
    BAR,
    BAR_TEE,
    HEADS,
    LANE,
    LINE,
    OPEN_BAR,
    OPEN_LINE,
    STUCK_LANE,
    TEE_BOTH,
    TEE_LEFT,
    TEE_RIGHT,
    Glyph,
    Piece,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.report.spacetime.glyphs import Style
    from runner.report.spacetime.rows import Arrow, Bar, Row

Cell = tuple[str, "Style"]

_EMPTY: Cell = (" ", "plain")


class Canvas:
    """The lanes that are drawn, each at its place, and what each looks like between its steps."""

    def __init__(self, lanes: Sequence[int], pitch: int) -> None:
        """Put the lanes `pitch` characters apart; two at least lie between, for an arrow."""
        self._pitch = pitch
        self.at = {lane: number * pitch for number, lane in enumerate(lanes)}
        self.width = (len(lanes) - 1) * pitch + 1 if lanes else 0
        self.between: dict[int, Cell] = dict.fromkeys(lanes, (LANE, "lane"))

    def stick(self, lane: int) -> None:
        """Let a lane show from here on that its rank stands still."""
        self.between[lane] = (STUCK_LANE, "stuck")

    def end(self, lane: int) -> None:
        """Let a lane end here."""
        self.between[lane] = _EMPTY

    def heads(self, ranks: Sequence[int]) -> str:
        """Return the line with a rank's number above every lane."""
        wide = self._pitch > len(f"rank {max(ranks)}") + 1
        names = [f"rank {rank}" if wide else str(rank) for rank in ranks]
        line = "".join(f"{name:<{self._pitch}}" for name in names).rstrip()
        return line if wide else f"{line}  rank"

    def passing(self) -> list[Piece]:
        """Return a line in which nothing happens."""
        return _pieces(self._blank())

    def eliding(self) -> list[Piece]:
        """Return a line that stands for many."""
        cells = self._blank()
        for lane, at in self.at.items():
            if self.between[lane] != _EMPTY:
                cells[at] = ("⋮", "dim")
        return _pieces(cells)

    def row(self, row: Row, glyphs: Mapping[int, Glyph]) -> list[Piece]:
        """Return a row of the picture; `glyphs` are those of its nodes, by lane."""
        cells = self._blank()
        for bar in row.bars:
            self._bar(cells, bar)
        self._arrows(cells, row.arrows)
        for lane, glyph in glyphs.items():
            cells[self.at[lane]] = (glyph.character, glyph.style)
        return _pieces(cells)

    def _blank(self) -> list[Cell]:
        cells = [_EMPTY] * self.width
        for lane, at in self.at.items():
            cells[at] = self.between[lane]
        return cells

    def _bar(self, cells: list[Cell], bar: Bar) -> None:
        low, high = (self.at[lane] for lane in bar.extent)
        style: Style = "bar" if bar.complete else "stuck"
        self._fill(cells, low, high, (BAR if bar.complete else OPEN_BAR, style))
        for lane in bar.lanes:
            cells[self.at[lane]] = (BAR_TEE, style)
        for lane in bar.missing:
            cells[self.at[lane]] = (ABSENT.character, ABSENT.style)

    def _arrows(self, cells: list[Cell], arrows: Sequence[Arrow]) -> None:
        """Draw lines, then where they begin, then their heads; two may share a line."""
        for arrow in arrows:
            low, high = (self.at[lane] for lane in arrow.extent)
            cell = (LINE if arrow.complete else OPEN_LINE, _style(arrow))
            self._fill(cells, low, high, cell)
        for arrow in arrows:
            at, right = self.at[arrow.source], arrow.source < arrow.target
            tee = TEE_RIGHT if right else TEE_LEFT
            other = cells[at][0] in {TEE_LEFT, TEE_RIGHT} and cells[at][0] != tee
            cells[at] = (TEE_BOTH if other else tee, _style(arrow))
        for arrow in arrows:
            right = arrow.source < arrow.target
            at = self.at[arrow.target] + (-1 if right else 1)
            cells[at] = (HEADS[right, arrow.complete], _style(arrow))
            if arrow.missing is not None:  # a node, where there is one, takes its place
                cells[self.at[arrow.missing]] = (ABSENT.character, ABSENT.style)

    def _fill(self, cells: list[Cell], low: int, high: int, cell: Cell) -> None:
        """Draw a line between two places; lanes that it passes stay in front."""
        lanes = {at: lane for lane, at in self.at.items()}
        for at in range(low + 1, high):
            if at not in lanes or self.between[lanes[at]] == _EMPTY:
                cells[at] = cell


def _style(arrow: Arrow) -> Style:
    return "arrow" if arrow.complete else "stuck"


def _pieces(cells: Sequence[Cell]) -> list[Piece]:
    return [
        Piece("".join(character for character, _ in run), style)
        for style, run in groupby(cells, key=lambda cell: cell[1])
    ]
