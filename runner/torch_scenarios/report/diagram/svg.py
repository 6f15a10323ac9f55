"""The diagram as a picture in SVG: the same rows as in text, with colours for light and for dark.

A picture stands by itself, on its ground: as a file, and in a page as an image. Hue is
never the only sign: who never goes on has a cross, who is missing a question mark.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import PurePath

from torch_scenarios.display import clean_line
from torch_scenarios.report.diagram.lanes import (
    ABSENT,
    ALONE,
    BEGUN,
    DIED,
    Glyph,
    StyledText,
    chain,
    end_of,
    glyph_of,
    gutter,
    name_ranks,
    pick_lanes,
    spans_begun,
    tell_beside,
    values_of,
    wrap,
)
from torch_scenarios.report.diagram.layout import Arrow, Bar, Block, PictureView, Row, blocks
from torch_scenarios.timeline import At, StepSpan, Timeline

#: pixels: around all, between rows and lines of text, between the lanes and what is beside them
MARGIN, ROW, LINE, GAP = 20, 34, 17, 34
#: pixels of a character, between two lanes at most, and of all lanes together where they can be
CHARACTER, WIDEST, LANES = 7.3, 84, 380
#: characters of a line of text
TEXT = 46
#: values of a step that are shown
MOST_VALUES = 6

STYLE = """
  svg { --bg: #ffffff; --edge: #dfe2e6; --fg: #1b1f24; --dim: #5c6570; --lane: #c3c9d0;
    --bad: #c2281d; --maybe: #96600a; --message: #37796f; --creation: #7a6a4f; --local: #69727d;
    --g0: #0072b2; --g1: #00855f; --g2: #8a5a9e; --g3: #a8760b; --g4: #1d7fa8; --g5: #4b4fb0 }
  @media (prefers-color-scheme: dark) { svg { --bg: #14171b; --edge: #2e343c; --fg: #e4e7eb;
    --dim: #9aa4b0; --lane: #434b55; --bad: #ff7a6b; --maybe: #e5ae4b; --message: #79c9bb;
    --creation: #c9b48f; --local: #8f99a6; --g0: #4aa8e8; --g1: #3dc79a; --g2: #c495d6;
    --g3: #dcb04e; --g4: #6cc7e6; --g5: #9a9df5 } }
  text { font: 12px ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace;
    fill: var(--fg); white-space: pre }
  .ground { fill: var(--bg); stroke: var(--edge) }
  .dim { fill: var(--dim) } .bad { fill: var(--bad) } .maybe { fill: var(--maybe) }
  .value { fill: var(--g0) } .strong { font-weight: 700 } .head { text-anchor: middle }
  .line { text-anchor: end; fill: var(--dim) }
  .lane { stroke: var(--lane); stroke-width: 1.5 }
  .rest { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 1 5; stroke-linecap: round }
  .bar { stroke: var(--hue); stroke-width: 6; stroke-linecap: round; opacity: .35 }
  .torn { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 5 4; fill: none }
  .way { stroke: var(--message); stroke-width: 2 } .tip { fill: var(--message) }
  .lost { fill: var(--bg); stroke: var(--bad); stroke-width: 1.5 }
  .node { fill: var(--hue) } .ring { fill: var(--bg); stroke: var(--hue); stroke-width: 2 }
  .gap { stroke-dasharray: 3 3 } .sign { fill: var(--hue); text-anchor: middle; font-weight: 700 }
  .cross { stroke: var(--hue); stroke-width: 2; stroke-linecap: round }
""".strip("\n")

#: what a step does -> the colour of its node, where its group has none
HUES = {"message": "message", "wait": "message", "creation": "creation"}
#: the style of a glyph or of text -> the colour
STYLES = {"stuck": "bad", "open": "maybe", "raised": "maybe"}


def svg(timeline: Timeline, view: PictureView) -> str:
    """Return a picture of a case as the text of an SVG file.

    Raises NoStepsError where the view shows none of its steps.

    Ranks are columns and the program goes down. The file has no script and loads nothing: a page
    may show it as an image, where a browser runs neither.
    """
    lanes = pick_lanes(timeline, view)
    found = blocks(timeline, lanes, view) if any(timeline.lanes[at].spans for at in lanes) else []
    return _Picture(timeline, lanes, found, values=view.values).text()


class _Picture:
    """Draws from the top downwards; `y` is where the next row begins, in pixels.

    Three layers, each a list of elements: bars at the back, the lanes and arrows over them, and
    over them the nodes and words, so that no line crosses a sign.
    """

    def __init__(
        self, timeline: Timeline, lanes: Sequence[int], shown: Sequence[Block], *, values: bool
    ) -> None:
        self._timeline, self._lanes, self._values = timeline, lanes, values
        pitch = min(WIDEST, LANES // max(1, len(lanes) - 1))
        rows = [row for block in shown for row in block.rows]
        widest = max((len(gutter(self._spans(row))) for row in rows), default=0)
        self._left = MARGIN + CHARACTER * widest
        first = max(self._left + GAP * 0.7, MARGIN + 3.2 * CHARACTER)
        self._x = {lane: first + pitch * at for at, lane in enumerate(lanes)}
        self._beside = first + pitch * (len(lanes) - 1) + GAP
        self._begun = spans_begun(timeline)
        self._hues = _hues(timeline)
        #: how far each lane is drawn, and whether its rank waits there for ever
        self._ends: dict[int, tuple[float, bool]] = {}
        self._bars: list[str] = []
        self._back: list[str] = []
        self._front: list[str] = []
        self._widest = 0
        self._legend: dict[Glyph, None] = {}
        self._y = float(MARGIN)
        self._heads()
        for block in shown:
            if block.skipped:
                self._draw_elided(block)
            for row in block.rows:
                self._row(row)
            if block.more:
                self._write([[StyledText(f"… {block.more} more messages", "dim")]])
                self._y += LINE
        self._bottom = self._y - ROW / 2 + 4
        self._explain()

    def text(self) -> str:
        """Return the whole file."""
        width = round(self._beside + CHARACTER * self._widest + MARGIN)
        height = round(self._y + MARGIN / 2)
        file = PurePath(
            self._timeline.file
        ).name  # a picture may be kept, its folder is this machine's
        what = f"{file}::{self._timeline.case}, {self._timeline.outcome}"
        size = f'width="{width}" height="{height}"'
        inner = f'width="{width - 1}" height="{height - 1}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
            f"<title>{_safe(what)}</title>",
            f"<style>\n{STYLE}\n</style>",
            f'<rect class="ground" x=".5" y=".5" {inner} rx="10"/>',
            *self._bars,
            *self._threads(),
            *self._back,
            *self._front,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _heads(self) -> None:
        wide = len(self._lanes) < 2 or self._x[self._lanes[1]] - self._x[self._lanes[0]] >= 56
        for lane in self._lanes:
            rank = self._timeline.lanes[lane].rank
            text = f"rank {rank}" if wide else str(rank)
            self._front.append(_text(self._x[lane], self._y + 10, text, "head dim"))
        self._y += 18
        self._top = self._y
        self._y += ROW / 2

    def _threads(self) -> Iterator[str]:
        """Yield the lanes themselves: to where each rank ends, dotted where it waits for ever."""
        for lane in self._lanes:
            x = self._x[lane]
            end, waits = self._ends.get(lane, (self._bottom, False))
            yield _line("lane", x, self._top, x, end)
            if waits and end < self._bottom:
                yield _line("rest", x, end, x, self._bottom)

    def _go_on(self, row: Row) -> None:
        """Note which lanes change in a row: their ranks wait for ever, or end."""
        for number, position in row.nodes.values():
            end = end_of(self._timeline.lanes[number], position)
            if end is not None:
                self._ends[number] = self._y, end == "waits"

    def _row(self, row: Row) -> None:
        for bar in row.bars:
            self._bar(bar, row)
        for arrow in row.arrows:
            self._arrow(arrow, shared=sum(a.extent == arrow.extent for a in row.arrows) > 1)
        for lane, at in row.nodes.items():
            span = self._span(at)
            glyph = glyph_of(span, self._timeline.lanes[lane], begun=at in self._begun)
            self._legend[glyph] = None
            self._front += _node(self._x[lane], self._y, glyph, self._hue(span))
        self._go_on(row)
        self._front.append(_text(self._left, self._y + 4, gutter(self._spans(row)), "line"))
        lines = wrap(tell_beside(self._timeline, row), TEXT)
        if self._values:
            lines += self._list_values(row)
        self._write(lines)
        self._y += ROW + LINE * max(0, len(lines) - 1)

    def _list_values(self, row: Row) -> list[list[StyledText]]:
        """Return what the steps of a row left in their tensors."""
        found = values_of(
            {
                self._timeline.lanes[lane].rank: self._timeline.lanes[lane].spans[at[1]].values
                for lane, at in row.nodes.items()
            }
        )
        lines = []
        for text, ranks in found[:MOST_VALUES]:
            whose = "" if 1 < len(ranks) == len(row.nodes) else f"  {name_ranks(ranks)}"
            lines.append(
                [StyledText(textwrap.shorten(text, TEXT), "value"), StyledText(whose, "dim")]
            )
        more = len(found) - MOST_VALUES
        return lines + ([[StyledText(f"… {more} more values", "dim")]] if more > 0 else [])

    def _draw_elided(self, block: Block) -> None:
        for lane in self._lanes:
            if lane not in self._ends:
                self._front.append(_text(self._x[lane], self._y + 4, "⋮", "head dim"))
        count = len(block.skipped)
        self._write([[StyledText(f"… {count} more step{'s' * (count > 1)}", "dim")]])
        for group in block.skipped:
            self._go_on(Row(nodes={at[0]: at for at in group}))
        self._y += ROW

    def _bar(self, bar: Bar, row: Row) -> None:
        """Draw the bar of a collective: whole where all came, broken to who did not."""
        low, high = (self._x[lane] for lane in bar.extent)
        span = next((self._span(row.nodes[lane]) for lane in bar.lanes if lane in row.nodes), None)
        if bar.complete:
            hue = "local" if span is None else self._hue(span)
            self._bars.append(_line("bar", low, self._y, high, self._y, hue))
        else:
            self._bars.append(_line("torn", low, self._y, high, self._y))
        for lane in bar.missing:
            self._absent(lane)

    def _arrow(self, arrow: Arrow, *, shared: bool) -> None:
        """Draw a message from its sender to its receiver.

        Two that cross in one row are moved apart.
        """
        right = arrow.source < arrow.target
        way = 1 if right else -1
        y = self._y + (5 * way if shared else 0)
        near = 9 if arrow.missing != arrow.target else 12
        begin, end = self._x[arrow.source], self._x[arrow.target] - near * way
        self._back.append(_line("way" if arrow.complete else "torn", begin, y, end - 9 * way, y))
        tip = f"M{end:g} {y:g}l{-9 * way} -5v10z"
        self._back.append(f'<path class="tip{"" if arrow.complete else " lost"}" d="{tip}"/>')
        if arrow.missing is not None:
            self._absent(arrow.missing)

    def _absent(self, lane: int) -> None:
        self._legend[ABSENT] = None
        self._back += _node(self._x[lane], self._y, ABSENT, "bad")

    def _span(self, at: At) -> StepSpan:
        return self._timeline.lanes[at[0]].spans[at[1]]

    def _spans(self, row: Row) -> list[StepSpan]:
        return [self._span(at) for at in row.nodes.values()]

    def _hue(self, span: StepSpan) -> str:
        if span.kind == "collective":
            return self._hues.get(span.group or "", "g0")
        return HUES.get(span.kind, "local")

    def _write(self, lines: Sequence[Sequence[StyledText]]) -> None:
        """Write lines beside the lanes, the first at the height of the row."""
        for number, line in enumerate(lines):
            text = "".join(piece.text for piece in line).strip()
            self._widest = max(self._widest, len(text))
            parts = [
                f'<tspan class="{STYLES.get(piece.style, piece.style)}">{_safe(piece.text)}</tspan>'
                for piece in line
                if piece.text
            ]
            y = self._y + 4 + LINE * number
            self._front.append(f'<text x="{self._beside:g}" y="{y:g}">{"".join(parts)}</text>')

    def _explain(self) -> None:
        """Write what the signs mean, and what is wrong.

        Only the signs that are in the picture, in the order in which they came.
        """
        signs = [f"{glyph.character} {glyph.legend}" for glyph in self._legend if glyph.legend]
        room = max(TEXT + 20, int((self._beside - MARGIN) / CHARACTER) + TEXT - 4)
        wrong = self._timeline.faults
        self._y += 8 if signs or wrong else -ROW / 2
        if signs:
            self._lines(textwrap.wrap("   ".join(signs), room), "dim")
            self._y += 6
        for each in wrong:
            ring = chain(self._timeline, each)
            self._lines([f"{each.name}  {ring}".rstrip()], "bad strong")
            self._lines(textwrap.wrap(each.prose, room), "fg")
            self._y += 6

    def _lines(self, lines: Sequence[str], style: str) -> None:
        for line in lines:
            self._front.append(_text(MARGIN, self._y + 4, line, style))
            within = len(line) - (self._beside - MARGIN) / CHARACTER
            self._widest = max(self._widest, round(within) + 1)
            self._y += LINE


def _hues(timeline: Timeline) -> dict[str, str]:
    """Return a colour for each group that has collectives, the world's first."""
    spans = (span for lane in timeline.lanes for span in lane.spans)
    groups = dict.fromkeys(s.group or "" for s in spans if s.kind == "collective")
    ordered = sorted(groups, key=lambda group: group not in {"", "world"})
    return {group: f"g{at % 6}" for at, group in enumerate(ordered)}


def _node(x: float, y: float, glyph: Glyph, hue: str) -> Iterator[str]:
    """Yield the node of a step: full where it is done, a ring with a sign where it is not.

    Colour is never the only sign: a reader who sees no red still sees a cross.
    """
    place = f'cx="{x:g}" cy="{y:g}"'
    colour = f' style="--hue: var(--{STYLES.get(glyph.style, hue)})"'
    if glyph is BEGUN:
        yield f'<circle class="ring" {place} r="5.5"{colour}/>'
    elif glyph.style == "step":
        yield f'<circle class="node" {place} r="{4 if glyph is ALONE else 6}"{colour}/>'
    elif glyph.character == "✗":
        yield f'<circle class="ring" {place} r="8"{colour}/>'
        yield f'<path class="cross" d="M{x - 3:g} {y - 3:g}l6 6m0 -6l-6 6"{colour}/>'
    else:
        gap = "" if glyph is DIED or glyph.style == "raised" else " gap"
        yield f'<circle class="ring{gap}" {place} r="8"{colour}/>'
        sign = _safe(glyph.character)
        yield f'<text class="sign" x="{x:g}" y="{y + 4.2:g}"{colour}>{sign}</text>'


def _line(style: str, x: float, y: float, to_x: float, to_y: float, hue: str = "") -> str:
    colour = f' style="--hue: var(--{hue})"' if hue else ""
    return f'<path class="{style}" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"{colour}/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Return a text of a file as XML shows it."""
    return escape(clean_line(text))
