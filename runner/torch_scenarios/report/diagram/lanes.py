"""The diagram as characters: lanes, arrows, words, legend, on a stream."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, TextIO, TypeAlias

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from torch_scenarios.display import clean_line
from torch_scenarios.report.diagram.layout import Arrow, Bar, Block, PictureView, Row, blocks
from torch_scenarios.report.text import milliseconds
from torch_scenarios.timeline import At, DrawnDiagnosis, Edge, Lane, StepSpan, Timeline

# -------------------------------------------------------------------------------------------------
# The characters of the picture, and what stands for them where a stream has only ASCII.

Style: TypeAlias = Literal[
    "plain", "strong", "dim", "lane", "bar", "arrow", "step", "stuck", "open", "raised", "value"
]


class StyledText(Struct, frozen=True):
    """Some text in one style; a line of the picture is a list of them.

    >>> StyledText("rank 0").style
    'plain'

    A style is a name and no colour: what it looks like is decided by the stream that shows it.
    """

    text: str
    style: Style = "plain"


class Glyph(Struct, frozen=True):
    """A character for a span, and what the legend says of it; nothing where it is clear.

        ●━━━●    MET: all came             ✗╌╌▷    blocked, and its peer did not come
        ○        BEGUN: a `wait` completes it

    Only glyphs that are in the picture are in its legend.
    """

    character: str
    style: Style
    legend: str = ""


MET = Glyph("●", "step")
ALONE = Glyph("•", "step")
BEGUN = Glyph("○", "step", "begun, a `wait` completes it")
DIED = Glyph("†", "stuck", "ends here")
BUSY = Glyph("◌", "open", "still busy")
ABSENT = Glyph("?", "stuck", "did not come")

_STATES = {
    "blocked": Glyph("✗", "stuck", "stuck"),
    "possibly_blocked": Glyph("◌", "open", "stuck or not: the semantics leave it open"),
    "raised": Glyph("!", "raised", "raises"),
}

LANE, STUCK_LANE = "│", "┊"
BAR, OPEN_BAR, BAR_TEE = "━", "╍", "┿"
LINE, OPEN_LINE = "─", "╌"
TEE_RIGHT, TEE_LEFT, TEE_BOTH = "├", "┤", "┼"
#: by direction (to the right), and whether the message arrived
HEADS = {(True, True): "▶", (False, True): "◀", (True, False): "▷", (False, False): "◁"}

#: every character that is not ASCII, and what stands for it
_PLAIN = {
    **dict(zip("●•○†◌✗│┊━╍┿─╌├┤┼▶◀▷◁", "*.o+%X|:=~+-~+++><><", strict=True)),
    "→": "->",
    "…": "...",
    "≠": "!=",
    "⋮": ":",
}
OURS = "".join(_PLAIN)
_ASCII = str.maketrans(_PLAIN)


def glyph_of(span: StepSpan, lane: Lane, *, begun: bool) -> Glyph:
    """Return the character for a span; `begun` tells that a `wait` completes it."""
    if span.state == "running":
        return DIED if lane.died else BUSY
    if span.state in _STATES:
        return _STATES[span.state]
    if begun:
        return BEGUN
    return MET if span.matches else ALONE


def end_of(lane: Lane, position: int) -> Literal["waits", "ends"] | None:
    """Return whether a rank waits for ever in a step, or ends with it; None where it goes on."""
    if lane.spans[position].stuck and lane.died is None:
        return "waits"
    last = position == len(lane.spans) - 1 and lane.ending in {"died", "raised"}
    return "ends" if last else None


def spans_begun(timeline: Timeline) -> set[At]:
    """Return the spans that begin what a later span of their lane completes."""
    return {
        at
        for match in timeline.matches
        for at, end in zip(match.spans, match.completed, strict=True)
        if at != end
    }


def replace_symbols(text: str) -> str:
    """Return a text with our own characters as ASCII; others stay."""
    return text.translate(_ASCII)


# -------------------------------------------------------------------------------------------------
# Pieces of text on lines of a certain width.

#: a width below which lines are left as they are
LEAST = 16

_WORDS = re.compile(r"\s*\S+\s*?")


def wrap(pieces: Sequence[StyledText], width: int) -> list[list[StyledText]]:
    """Return the pieces on lines of at most `width` characters; a longer word has a line."""
    if width < LEAST or sum(len(piece.text) for piece in pieces) <= width:
        return [list(pieces)]
    lines: list[list[StyledText]] = [[]]
    left = width
    for piece in pieces:
        if left < len(piece.text) <= width and lines[-1]:
            lines.append([])
            left = width
        for word in _WORDS.findall(piece.text):
            if len(word) > left and lines[-1]:
                lines.append([])
                left = width
            own = word if lines[-1] else word.lstrip()
            lines[-1].append(StyledText(own, piece.style))
            left -= len(own)
    return lines


# -------------------------------------------------------------------------------------------------
# One row of the picture as characters: lanes, nodes, bars and arrows.

Cell = tuple[str, "Style"]

_EMPTY: Cell = (" ", "plain")


class Canvas:
    """The lanes that are drawn, each at its place, and what each looks like between its steps.

    >>> canvas = Canvas([0, 1, 2], pitch=6)
    >>> canvas.at, canvas.width
    ({0: 0, 1: 6, 2: 12}, 13)
    """

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

    def hosts(self, names: Sequence[str]) -> str:
        """Return the line with the host of each lane, once for lanes of one host in a row."""
        line = ""
        for name, run in groupby(names):
            width = len(list(run)) * self._pitch
            short = name if len(name) < width else f"{name[: width - 2]}…"
            line += f"{short:<{width}}"
        return line.rstrip()

    def draw_empty_line(self) -> list[StyledText]:
        """Return a line in which nothing happens."""
        return _pieces(self._blank())

    def draw_elision(self) -> list[StyledText]:
        """Return a line that stands for many."""
        cells = self._blank()
        for lane, at in self.at.items():
            if self.between[lane] != _EMPTY:
                cells[at] = ("⋮", "dim")
        return _pieces(cells)

    def row(self, row: Row, glyphs: Mapping[int, Glyph]) -> list[StyledText]:
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


def _pieces(cells: Sequence[Cell]) -> list[StyledText]:
    return [
        StyledText("".join(character for character, _ in run), style)
        for style, run in groupby(cells, key=lambda cell: cell[1])
    ]


# -------------------------------------------------------------------------------------------------
# What stands beside a row: where in the file, which step, which rank waits for which, what it left.

#: seconds from which it is said that a rank came late, or was busy
NOTED_S = 0.05

#: labels that a row names one by one; of more it names the operation
MOST_LABELS = 2

#: lines of the file that a row names one by one
MOST_LINES = 2


def gutter(spans: Sequence[StepSpan]) -> str:
    """Return the lines of the file that a row's steps are on: `7`, `7,9`, or `7-12` of many."""
    lines = sorted({span.line for span in spans if span.line is not None})
    if len(lines) > MOST_LINES:
        return f"{lines[0]}-{lines[-1]}"
    return ",".join(map(str, lines))


def tell_beside(timeline: Timeline, row: Row) -> list[StyledText]:
    """Return the text beside a row; nothing where no step is drawn in it."""
    spans = {lane: timeline.lanes[lane].spans[row.nodes[lane][1]] for lane in _senders_first(row)}
    if not spans:
        return []
    pieces = [StyledText(_label(list(spans.values()), met=bool(row.arrows or row.bars)))]
    iterations = dict.fromkeys(span.iteration for span in spans.values() if span.iteration)
    if iterations:
        phrase = " and ".join(", ".join(map(str, values)) for values in iterations)
        pieces.append(StyledText(f"  iteration {phrase}", "dim"))
    pieces += [StyledText(f"  {text}", "dim") for text in _list_used_files(list(spans.values()))]
    raised = dict.fromkeys(span.raised for span in spans.values() if span.raised)
    pieces += [StyledText(f"  raises {words}", "raised") for words in raised]
    if timeline.witness == "observed":
        pieces += [StyledText(f"  {text}", "dim") for text in _tell_lateness(timeline, spans)]
    return pieces + _tell_waits(timeline, spans)


def _tell_lateness(timeline: Timeline, spans: Mapping[int, StepSpan]) -> Iterator[str]:
    """Yield which rank kept the others of a row waiting, or how long a rank computed alone.

    Only of a run: a prediction has no clock but for its sleeps.
    """
    begun = {timeline.lanes[lane].rank: span.start_s for lane, span in spans.items()}
    spread = max(begun.values()) - min(begun.values())
    if spread >= NOTED_S and all(span.matches for span in spans.values()):
        late = max(begun, key=begun.__getitem__)
        yield f"rank {late} came {milliseconds(spread)} after the first"
    took = [s.end_s - s.start_s for s in spans.values() if s.end_s is not None and not s.matches]
    if took and max(took) >= NOTED_S:
        yield f"took {milliseconds(max(took))}"


def _list_used_files(spans: Sequence[StepSpan]) -> list[str]:
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


def _label(spans: Sequence[StepSpan], *, met: bool) -> str:
    labels = list(dict.fromkeys(span.label for span in spans))
    if len(labels) == 1:
        return labels[0]
    if met or len(labels) > MOST_LABELS:
        labels = list(dict.fromkeys(_shorten_name(span) for span in spans))
    return (" / " if met else ", ").join(labels)


def _shorten_name(span: StepSpan) -> str:
    """Return the operation's name, unless the author gave the step one."""
    if span.operation is not None and span.label.startswith(span.operation):
        return span.operation
    return span.label


def _tell_waits(timeline: Timeline, spans: Mapping[int, StepSpan]) -> list[StyledText]:
    """Return what the blocked ranks of a row wait for, where a phrase can say it."""
    stuck = sorted(timeline.lanes[lane].rank for lane, span in spans.items() if span.stuck)
    if not stuck or any(span.state == "running" for span in spans.values()):
        return []
    waits: dict[str, list[int]] = {}
    for waiter in stuck:
        edges = [edge for edge in timeline.edges if edge.waiter == waiter]
        if edges:
            last = "and" if edges[0].sure else "or"
            peers = name_ranks([edge.peer for edge in edges], last)
            waits.setdefault(f"{peers} {edges[0].because}", []).append(waiter)
    if len(waits) == 1:
        return [StyledText(f"  waits for {next(iter(waits))}", "stuck")]
    return [StyledText("  stuck", "stuck")]


def values_of(values: Mapping[int, Mapping[str, str]]) -> list[tuple[str, list[int]]]:
    """Return each value as `x = [3, 3]` with the ranks that hold it; `values` are by rank.

    >>> values_of({0: {"x": "[3, 3]"}, 1: {"x": "[3, 3]"}})
    [('x = [3, 3]', [0, 1])]
    """
    held: dict[tuple[str, str], list[int]] = {}
    for rank, own in sorted(values.items()):
        for name, text in own.items():
            held.setdefault((name, text), []).append(rank)
    order = list(dict.fromkeys(name for name, _ in held))
    rows = sorted(held.items(), key=lambda item: (order.index(item[0][0]), item[1]))
    return [(f"{name} = {text}", ranks) for (name, text), ranks in rows]


def name_ranks(ranks: Iterable[int], last: str = "and") -> str:
    """Return `rank 3`, `ranks 0 and 2`, `ranks 0-3 and 7`; `last` is the word before the last.

    >>> name_ranks([3]), name_ranks([0, 2]), name_ranks([0, 1, 2, 3, 7])
    ('rank 3', 'ranks 0 and 2', 'ranks 0-3 and 7')
    """
    parts = []
    numbered = enumerate(sorted(set(ranks)))
    for _, run in groupby(numbered, key=lambda item: item[1] - item[0]):
        members = [rank for _, rank in run]
        few = len(members) <= 2
        parts += [str(r) for r in members] if few else [f"{members[0]}-{members[-1]}"]
    if len(parts) == 1 and "-" not in parts[0]:
        return f"rank {parts[0]}"
    before = ", ".join(parts[:-1])
    return f"ranks {before} {last} {parts[-1]}" if before else f"ranks {parts[0]}"


# -------------------------------------------------------------------------------------------------
# The lanes of the picture with their rows, the lines of the file beside them, the legend.

Line = list[StyledText]

#: characters between two lanes: an arrow needs two, and many are no help
CLOSEST, WIDEST = 3, 10

#: characters that lanes leave to the text beside them, if it needs so many
ENOUGH_TEXT = 44

#: values that are shown of one step; more are counted
MOST_VALUES = 16

_TITLE = "line"


class Drawing:
    """Draws some lanes of a timeline."""

    def __init__(self, timeline: Timeline, lanes: Sequence[int], view: PictureView) -> None:
        """Put steps into rows, and lanes as far apart as the width allows."""
        self._timeline, self._view, self._lanes = timeline, view, lanes
        self._blocks = blocks(timeline, lanes, view)
        rows = [row for block in self._blocks for row in block.rows]
        self._left = max(len(_TITLE), *(len(gutter(self._spans(row))) for row in rows))
        texts = (sum(len(piece.text) for piece in tell_beside(timeline, row)) for row in rows)
        room = view.width - self._left - 6 - min(max(texts, default=0), ENOUGH_TEXT)
        self._canvas = Canvas(lanes, max(CLOSEST, min(WIDEST, room // len(lanes))))
        self._room = view.width - self._left - self._canvas.width - 4
        self._legend: dict[Glyph, None] = {}
        self._begun = spans_begun(timeline)

    def lines(self) -> Iterator[Line]:
        """Yield the lines, from the ranks' numbers to the legend."""
        lanes = {lane: self._timeline.lanes[lane] for lane in self._lanes}
        hosts = self._canvas.hosts([lane.host for lane in lanes.values()])
        if hosts:
            yield [StyledText(f"{'':>{self._left}}  {hosts}", "dim")]
        heads = self._canvas.heads([lane.rank for lane in lanes.values()])
        yield [StyledText(f"{_TITLE:>{self._left}}  {heads}", "dim")]
        if self._view.values:
            yield from self._lay_beside(StyledText("before the first step", "dim"))
            yield from self._values({lane.rank: lane.initial for lane in lanes.values()})
        for block in self._blocks:
            if block.skipped:
                yield from self._draw_elided(block)
            for row in block.rows:
                yield from self._row(row)
            if block.more:
                yield from self._lay_beside(StyledText(f"… {block.more} more messages", "dim"))
        parts = [f"{glyph.character} {glyph.legend}" for glyph in self._legend if glyph.legend]
        if parts:
            yield []
            yield from self._legend_lines(parts)

    def _legend_lines(self, told: list[str]) -> Iterator[Line]:
        room = self._view.width - self._left
        for line in wrap([StyledText(f"   {text}") for text in told], room):
            text = "".join(piece.text for piece in line).strip()
            yield [StyledText(" " * (self._left + 2) + text, "dim")]

    def _spans(self, row: Row) -> list[StepSpan]:
        return [self._timeline.lanes[lane].spans[at] for lane, at in row.nodes.values()]

    # ------------------------------------------------------------------ lines

    def _margin(self, text: str) -> Line:
        return [StyledText(f"{text:>{self._left}}  ", "dim")]

    def _lay_beside(self, *text: StyledText) -> Iterator[Line]:
        """Yield lines of text beside lanes on which nothing happens."""
        for line in wrap(text, self._room):
            yield [*self._margin(""), *self._canvas.draw_empty_line(), StyledText("  "), *line]

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
        first, *more = wrap(tell_beside(self._timeline, row), self._room)
        yield [*self._margin(gutter(self._spans(row))), *drawn, StyledText("  "), *first]
        for line in more:
            yield from self._lay_beside(StyledText("  "), *line)
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
            end = end_of(self._timeline.lanes[number], position)
            if end == "waits":
                self._canvas.stick(number)
            elif end == "ends":
                self._canvas.end(number)

    def _draw_elided(self, block: Block) -> Iterator[Line]:
        drawn = self._canvas.draw_elision()
        self._go_on(at for group in block.skipped for at in group)
        first, count = block.number, len(block.skipped)
        many = "1 more step" if count == 1 else f"{count} more steps"
        text = StyledText(f"… {many}: --steps {first}:{first + count - 1}", "dim")
        yield [*self._margin("⋮"), *drawn, StyledText("  "), text]

    def _values(self, values: Mapping[int, Mapping[str, str]]) -> Iterator[Line]:
        found = values_of(values)
        for text, ranks in found[:MOST_VALUES]:
            whose = "" if 1 < len(ranks) == len(values) else f"  {name_ranks(ranks)}"
            yield from self._lay_beside(StyledText(f"  {text}", "value"), StyledText(whose, "dim"))
        if len(found) > MOST_VALUES:
            yield from self._lay_beside(
                StyledText(f"  … {len(found) - MOST_VALUES} more values", "dim")
            )


# -------------------------------------------------------------------------------------------------
# The whole picture: title, lanes, and what is wrong with which rank waits for which.

#: characters beside the lanes that stay free for text, whatever the number of ranks
LEAST_TEXT = 40


def picture(timeline: Timeline, view: PictureView) -> list[Line]:
    """Return the lines of the picture."""
    lines: list[Line] = [_title(timeline), []]
    lanes = pick_lanes(timeline, view)
    if any(timeline.lanes[lane].spans for lane in lanes):
        lines += Drawing(timeline, lanes, view).lines()
    else:
        lines.append([StyledText("no rank takes a step", "dim")])
    left_out = len(timeline.lanes) - len(lanes)
    if left_out and view.ranks is None:
        lines += [
            [],
            [StyledText(f"… {left_out} more ranks: --ranks chooses which are drawn", "dim")],
        ]
    rings: set[str] = set()
    for fault in timeline.faults:
        ring = chain(timeline, fault)
        lines += [[], *_explain(fault, "" if ring in rings else ring, view.width)]
        rings.add(ring)
    return lines


def _title(timeline: Timeline) -> Line:
    how = "predicted" if timeline.witness == "predicted" else f"observed on {timeline.backend}"
    return [
        StyledText(f"{timeline.file}::{timeline.case}", "strong"),
        StyledText(f"  {how}: ", "dim"),
        StyledText(timeline.outcome, "plain" if timeline.outcome == "completes" else "stuck"),
    ]


def pick_lanes(timeline: Timeline, view: PictureView) -> list[int]:
    """Return the lanes to draw: those asked for, or as many as fit, first those at fault."""
    if view.ranks is not None:
        return [at for at, lane in enumerate(timeline.lanes) if lane.rank in view.ranks]
    most = max(2, (view.width - LEAST_TEXT) // CLOSEST)
    if len(timeline.lanes) <= most:
        return list(range(len(timeline.lanes)))
    groups = (
        {rank for fault in timeline.faults for rank in fault.odd},
        {rank for edge in timeline.edges if edge.cycle for rank in (edge.waiter, edge.peer)},
        {rank for match in timeline.matches for rank in match.missing},
        {rank for fault in timeline.faults for rank in fault.ranks},
        {lane.rank for lane in timeline.lanes},
    )
    kept = set(list(dict.fromkeys(rank for group in groups for rank in sorted(group)))[:most])
    return [at for at, lane in enumerate(timeline.lanes) if lane.rank in kept]


# ---------------------------------------------------------------------------- what is wrong


def _explain(fault: DrawnDiagnosis, ring: str, width: int) -> Iterator[Line]:
    """Yield a diagnosis: its name, the ring of those who wait, its clauses."""
    yield [StyledText(fault.name, "stuck"), StyledText(f"  {ring}" if ring else "", "stuck")]
    for clause in _clauses(fault.prose):
        for line in textwrap.wrap(clause, max(40, width - 2), subsequent_indent="  "):
            yield [StyledText(f"  {line}")]


def _clauses(prose: str) -> list[str]:
    clauses = prose.split("; ")
    return [f"{clause};" for clause in clauses[:-1]] + clauses[-1:]


def chain(timeline: Timeline, diagnosis: DrawnDiagnosis) -> str:
    """Return `  0 → 1 → 0`, the ranks of a ring in which each waits for the next; else nothing."""
    after = _successors(
        edge for edge in timeline.edges if edge.cycle and edge.waiter in diagnosis.ranks
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


# -------------------------------------------------------------------------------------------------
# The picture on a stream: with colours on a terminal, in ASCII where it has nothing else.

#: the width where there is no terminal, and COLUMNS says nothing
WIDTH = 100

STYLES: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "lane": "dim",
    "bar": "cyan",
    "arrow": "green",
    "step": "bold",
    "stuck": "bold red",
    "open": "bold yellow",
    "raised": "bold magenta",
    "value": "cyan",
}

#: control characters, which could make a terminal do something


class Printer:
    """Prints lines to a stream. Colours follow NO_COLOR and FORCE_COLOR, as `rich` does.

    A stream that has no box characters gets ASCII: `*---*` in place of `●━━━●`.
    """

    def __init__(self, file: TextIO) -> None:
        """Learn what the stream can show."""
        self._console = Console(file=file, highlight=False, soft_wrap=True, markup=False)
        self._ascii = not _encodes(file)

    @property
    def width(self) -> int:
        """The characters of a line."""
        known = self._console.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
        return self._console.width if known else WIDTH

    def print(self, lines: Iterable[Iterable[StyledText]]) -> None:
        """Print each line; nothing stands at the end of one that cannot be seen."""
        for line in lines:
            text = Text()
            for piece in line:
                plain = replace_symbols(piece.text) if self._ascii else piece.text
                text.append(clean_line(plain).replace("\t", " "), style=STYLES[piece.style])
            text.rstrip()
            self._console.print(text)


def _encodes(file: TextIO) -> bool:
    """Return whether a stream can show the characters that lanes are made of."""
    try:
        OURS.encode(file.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
