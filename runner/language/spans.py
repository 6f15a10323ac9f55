"""Where every node of a YAML text stands, to the character.

The tree of :mod:`runner.language.tree` says what a file means; its marks name a place for people.
Who changes a file needs more: the end of a block, the alias itself and not what it stands for,
the dash before an item. That is the :class:`Span` of a node, made of the same parser's events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


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
