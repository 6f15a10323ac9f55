"""The characters of the picture, and what stands for them where a stream has only ASCII."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from runner.timeline import Lane, Span

Style: TypeAlias = Literal[
    "plain", "strong", "dim", "lane", "bar", "arrow", "step", "stuck", "open", "raised", "value"
]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one style; a line of the picture is a list of them."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character for a span, and what the legend says of it; nothing where it is clear."""

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


def glyph_of(span: Span, lane: Lane, *, begun: bool) -> Glyph:
    """Return the character for a span; `begun` tells that a `wait` completes it."""
    if span.state == "running":
        return DIED if lane.died else BUSY
    if span.state in _STATES:
        return _STATES[span.state]
    if begun:
        return BEGUN
    return MET if span.meetings else ALONE


def in_ascii(text: str) -> str:
    """Return a text with our own characters as ASCII; others stay."""
    return text.translate(_ASCII)
