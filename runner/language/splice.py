"""Editing YAML by its text: where every node stands to the character, and edits that keep the rest.

The tree of :mod:`runner.language.tree` says what a file means; its marks name a place for people.
Who changes a file needs more: the end of a block, the alias itself and not what it stands for,
the dash before an item. That is the :class:`Span` of a node, made of the same parser's events. What
an edit does not name stays as it is to the byte: comments, quotes, blank lines, line ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace the characters `start` to `end` (exclusive) of a text by another text."""

    start: int
    end: int
    text: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Span:
    """One node of a text: `start` and `end` are offsets, the latter exclusive.

    A block collection ends where its last node does. `text` is what a scalar says, without quotes,
    or the name of an alias; `dressed` tells that an anchor or a tag stands before it. `line` and
    `column` count from 1, and are those that the marks of a tree name.
    """

    kind: str
    start: int
    end: int
    line: int
    column: int
    text: str = ""
    plain: bool = False
    flow: bool = False
    dressed: bool = False
    items: list[Span] = field(default_factory=list)
    entries: list[tuple[Span, Span]] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, as the tree's mark of this node has them."""
        if self.entries and not self.flow:
            return self.entries[0][0].line, self.entries[0][0].column
        return self.line, self.column

    @property
    def is_null(self) -> bool:
        """Whether this is a plain scalar that means nothing: empty, `~` or `null`."""
        return self.kind == "scalar" and self.plain and self.text in _NULLS

    def get(self, key: str) -> Span | None:
        """Return the value of a key of a mapping; None where there is none."""
        return next((value for name, value in self.entries if name.text == key), None)

    def entry(self, key: str) -> int | None:
        """Return the position of a key of a mapping; None where there is none."""
        return next((n for n, (name, _) in enumerate(self.entries) if name.text == key), None)

    def children(self) -> Iterator[Span]:
        """Yield the values of a mapping, or the items of a list."""
        yield from self.items
        yield from (value for _, value in self.entries)


def spans(text: str) -> Span:
    """Return the root of a text that is one well-formed YAML document.

    Raises yaml.YAMLError where it is not: read the text with :func:`runner.language.reader.parse`
    first, which says what is wrong.
    """
    root: Span | None = None
    stack: list[Span] = []
    keys: list[Span | None] = []
    loader = _Parser(text)
    while loader.check_event():
        event: Any = loader.get_event()
        end: Any = event.end_mark
        if isinstance(event, yaml.CollectionEndEvent):
            span = stack.pop()
            keys.pop()
            span.end = end.index if span.flow else _last(span)
        elif isinstance(event, yaml.NodeEvent):
            span = _span(event, text)
        else:
            continue
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(span)
            keys.append(None)
        elif not stack:
            root = span
        elif stack[-1].kind == "sequence":
            stack[-1].items.append(span)
        elif keys[-1] is None:
            keys[-1] = span
        else:
            stack[-1].entries.append((keys[-1], span))
            keys[-1] = None
    assert root is not None  # noqa: S101 -- the reader refuses an empty file
    return root


def _span(event: Any, text: str) -> Span:  # noqa: ANN401 -- PyYAML's stubs do not type events
    start, end = event.start_mark.index, event.end_mark.index
    found = Span(
        kind="scalar",
        start=start,
        end=end,
        line=event.start_mark.line + 1,
        column=event.start_mark.column + 1,
    )
    if isinstance(event, yaml.AliasEvent):
        found.kind, found.text = "alias", str(event.anchor)
        return found
    found.dressed = event.anchor is not None or event.tag is not None
    if isinstance(event, yaml.ScalarEvent):
        found.text = event.value
        found.plain = event.implicit[0]
        if event.style in {"|", ">"}:
            found.end = start + len(text[start:end].rstrip())
        return found
    found.kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
    found.flow = bool(event.flow_style)
    return found


def _last(span: Span) -> int:
    """Return the end of the last node of a block."""
    ends = [item.end for item in span.items]
    ends += [max(key.end, value.end) for key, value in span.entries]
    return max(ends, default=span.end)


# ---------------------------------------------------------------------------- edits


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
