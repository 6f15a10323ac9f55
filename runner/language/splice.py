"""Editing YAML by its text: what an edit does not name stays as it is to the byte.

Comments, quotes, blank lines and line ends survive; where a node begins and ends is told by
:mod:`runner.language.spans`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from runner.language.spans import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace the characters `start` to `end` (exclusive) of a text by another text."""

    start: int
    end: int
    text: str = ""


def splice(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made; of two that overlap, both must delete."""
    return spliced(text, list(edits))[0]


def spliced(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Return a text with edits made, and where the text of each edit begins in it."""
    parts: list[str] = []
    starts = [0] * len(edits)
    at = made = 0
    for number in sorted(range(len(edits)), key=lambda n: (edits[n].start, edits[n].end, n)):
        edit = edits[number]
        if edit.start < at:
            assert not edit.text  # noqa: S101 -- only deletions may meet
        kept = text[at : max(at, edit.start)]
        parts += [kept, edit.text]
        starts[number] = made + len(kept)
        made += len(kept) + len(edit.text)
        at = max(at, edit.end)
    return "".join(parts) + text[at:], starts


def newline(text: str) -> str:
    """Return the line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def line_start(text: str, offset: int) -> int:
    """Return where the line of an offset begins."""
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Return where the line of an offset ends, before its line break."""
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def indentation(text: str, span: Span) -> int:
    """Return the column, from 0, of a block node: what its lines are indented by."""
    return (span.entries[0][0].start if span.entries else span.start) - line_start(text, span.start)


def filled(text: str, empty: Span, value: str) -> Edit:
    """Return the edit that puts a value where nothing, or something else, stands."""
    glued = empty.start == empty.end and text[empty.start - 1 : empty.start] in {":", "-"}
    return Edit(start=empty.start, end=empty.end, text=" " + value if glued else value)


def below(text: str, start: int, span: Span, lines: str) -> Edit:
    """Return the edit that puts whole lines below a key in place of its value.

    `start` is right after the key's colon. A comment beside the key or the value stays there.
    """
    end = line_end(text, start)
    if span.start > end:  # it stood below the key already
        return Edit(start=end, end=span.end, text=lines)
    end = line_end(text, max(start, span.end))
    return Edit(start=start, end=end, text=text[max(start, span.end) : end].rstrip() + lines)


def without(text: str, parent: Span, gone: Collection[int]) -> list[Edit]:
    """Return the edits that remove some items of a list, or some entries of a mapping.

    The comment lines right above an item of a block go with it. Something must remain.
    """
    pieces = _pieces(text, parent)
    kept = [number for number in range(len(pieces)) if number not in gone]
    if not kept:
        message = "nothing would remain"
        raise ValueError(message)
    if parent.flow:
        return [_flow_gone(pieces, number, kept[0]) for number in sorted(gone)]
    first, edits = pieces[0][0], []
    shares = bool(text[line_start(text, first) : first].strip())
    for number in sorted(gone):
        start, end = pieces[number]
        if shares and number < kept[0]:
            edits.append(Edit(start=start, end=pieces[number + 1][0]))
        else:
            top = _with_comments(text, line_start(text, start), start)
            edits.append(Edit(start=top, end=_next_line(text, end)))
    return edits


def _pieces(text: str, parent: Span) -> list[tuple[int, int]]:
    """Return where each item or entry begins (at its dash, in a block) and ends."""
    if parent.kind == "mapping":
        return [(key.start, max(key.end, value.end)) for key, value in parent.entries]
    if parent.flow:
        return [(item.start, item.end) for item in parent.items]
    found, low = [], parent.start
    for item in parent.items:
        dash = text.rfind("-", low, max(item.start, low + 1))
        found.append((low if dash < 0 else dash, item.end))
        low = item.end
    return found


def _flow_gone(pieces: list[tuple[int, int]], number: int, first: int) -> Edit:
    if number > first:
        return Edit(start=pieces[number - 1][1], end=pieces[number][1])
    return Edit(start=pieces[number][0], end=pieces[number + 1][0])


def _with_comments(text: str, top: int, start: int) -> int:
    """Return where the comment lines begin that stand right above a line, indented as it is."""
    column = start - line_start(text, start)
    while top > 0:
        above = line_start(text, top - 1)
        line = text[above : top - 1]
        comment = re.match(r"( *)#", line)
        if comment is None or len(comment[1]) != column or above == 0:
            break
        top = above
    return top


def _next_line(text: str, offset: int) -> int:
    found = text.find("\n", offset)
    return len(text) if found < 0 else found + 1
