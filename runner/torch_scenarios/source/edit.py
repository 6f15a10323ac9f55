"""Edits of a YAML text: spans of nodes, splices that leave all else, values as YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from msgspec import Struct, field

from torch_scenarios.errors import Edit

# -------------------------------------------------------------------------------------------------
# Where every node of a YAML text stands, to the character.
#
# The tree of :mod:`torch_scenarios.source.tree` says what a file means; its marks name a place for
# people. Who changes a file needs more: the end of a block, the alias itself and not what it stands
# for, the dash before an item. That is the :class:`Span` of a node, made of the same parser's
# events.

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Span(Struct, kw_only=True, eq=False):
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

    Raises yaml.YAMLError where it is not: read the text with
    :func:`torch_scenarios.source.tree.parse` first, which says what is wrong.
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
            span.end = end.index if span.flow else _find_end(span)
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
    assert root is not None
    return root


def _span(event: Any, text: str) -> Span:
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


def _find_end(span: Span) -> int:
    """Return the end of the last node of a block."""
    ends = [item.end for item in span.items]
    ends += [max(key.end, value.end) for key, value in span.entries]
    return max(ends, default=span.end)


# -------------------------------------------------------------------------------------------------
# Editing YAML by its text: what an edit does not name stays as it is to the byte.
#
# Comments, quotes, blank lines and line ends survive; where a node begins and ends is told by
# :mod:`torch_scenarios.source.edit`.


def splice(text: str, edits: Iterable[Edit]) -> str:
    r"""Return a text with edits made; of two that overlap, both must delete.

    >>> splice("x: 1\n", [Edit(start=3, end=4, text="[1, 2]")])
    'x: [1, 2]\n'
    """
    return splice_edits(text, list(edits))[0]


def splice_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Return a text with edits made, and where the text of each edit begins in it."""
    parts: list[str] = []
    starts = [0] * len(edits)
    at = made = 0
    for number in sorted(range(len(edits)), key=lambda n: (edits[n].start, edits[n].end, n)):
        edit = edits[number]
        if edit.start < at:
            assert not edit.text
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
    r"""Return where the line of an offset begins.

    >>> line_start("ab\ncd", 4), line_end("ab\ncd", 0)
    (3, 2)
    """
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Return where the line of an offset ends, before its line break."""
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    return end - 1 if end > offset and text[end - 1] == "\r" else end


def indentation(text: str, span: Span) -> int:
    """Return the column, from 0, of a block node: what its lines are indented by."""
    return (span.entries[0][0].start if span.entries else span.start) - line_start(text, span.start)


def fill(text: str, empty: Span, value: str) -> Edit:
    """Return the edit that puts a value where nothing, or something else, stands."""
    glued = empty.start == empty.end and text[empty.start - 1 : empty.start] in {":", "-"}
    return Edit(start=empty.start, end=empty.end, text=" " + value if glued else value)


def put_below(text: str, start: int, span: Span, lines: str) -> Edit:
    """Return the edit that puts whole lines below a key in place of its value.

    `start` is right after the key's colon. A comment beside the key or the value stays there.
    """
    end = line_end(text, start)
    if span.start > end:  # it stood below the key already
        return Edit(start=end, end=span.end, text=lines)
    end = line_end(text, max(start, span.end))
    return Edit(start=start, end=end, text=text[max(start, span.end) : end].rstrip() + lines)


def remove_items(text: str, parent: Span, gone: Collection[int]) -> list[Edit]:
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
            top = find_comments(text, line_start(text, start), start)
            edits.append(Edit(start=top, end=_find_next_line(text, end)))
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


def find_comments(text: str, top: int, start: int) -> int:
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


def _find_next_line(text: str, offset: int) -> int:
    found = text.find("\n", offset)
    return len(text) if found < 0 else found + 1


# -------------------------------------------------------------------------------------------------
# Values by rank -> the fewest entries that state them: one for all, or a mapping.

#: this many ranks in a row are a `range`
ROW = 4


class Stated(Struct, frozen=True, kw_only=True):
    """What is stated: `entries` are (selector, value); one without a selector holds for all.

    >>> Stated(entries=(("", "[3, 3]"),)).alone
    '[3, 3]'
    >>> Stated(entries=(("rank == 0", "[3, 3]"), ("else", "[0, 0]"))).alone is None
    True
    """

    entries: tuple[tuple[str, str], ...]

    @property
    def alone(self) -> str | None:
        """The one value for every rank that is asked; None where ranks differ."""
        selector, value = self.entries[0]
        return value if not selector else None

    @property
    def line(self) -> str:
        """Everything in one line: the value, or a flow mapping."""
        if self.alone is not None:
            return self.alone
        return "{" + ", ".join(f"{selector}: {value}" for selector, value in self.entries) + "}"


def state_values(
    values: Mapping[int, str | None], groups: Mapping[frozenset[int], str], *, rest: bool = True
) -> Stated:
    """Return the fewest entries that state values; `values` maps every rank asked to its text.

    None is a rank of which nothing can be said. `groups` names sets of ranks. Without `rest`
    nothing may hold for "everybody else" (`else`), because others are spoken of elsewhere.
    """
    classes: dict[str, list[int]] = {}
    for rank in sorted(values):
        text = values[rank]
        if text is not None:
            classes.setdefault(text, []).append(rank)
    all_asked = None not in values.values()
    if len(classes) == 1 and all_asked:
        return Stated(entries=(("", next(iter(classes))),))
    last = _find_common_value(classes) if rest and all_asked else None
    entries = [
        (selector(tuple(ranks), groups), text) for text, ranks in classes.items() if text != last
    ]
    return Stated(entries=(*entries, *([("else", last)] if last is not None else [])))


def _find_common_value(classes: Mapping[str, list[int]]) -> str | None:
    """Return the value of most ranks, where several share it: what `else` says."""
    if len(classes) < 2:
        return None
    most = max(classes, key=lambda text: (len(classes[text]), min(classes[text])))
    return most if len(classes[most]) > 1 else None


def selector(ranks: tuple[int, ...], groups: Mapping[frozenset[int], str]) -> str:
    """Return the key that selects some ranks: a rank, a group's name, a range or a list.

    >>> selector((2,), {}), selector((0, 1), {frozenset({0, 1}): "pair"})
    ('2', 'pair')
    """
    if len(ranks) == 1:
        return str(ranks[0])
    named = groups.get(frozenset(ranks))
    if named is not None:
        return named
    low, high = ranks[0], ranks[-1] + 1
    if len(ranks) >= ROW and high - low == len(ranks):
        return f'"range({low}, {high})"' if low else f'"range({high})"'
    return f'"{list(ranks)}"'


# -------------------------------------------------------------------------------------------------
# A value -> YAML: numbers and nested lists, the shortest that says the same.
#
# `[3, 3]`, `0.1`, `[true, false]`, `{value: 7, shape: [1000]}` for what would be a long list of
# equal numbers. Floats are written with the fewest digits that lie well within what the comparison
# allows for their dtype; integers, booleans and narrow floats exactly. Expressions are not
# invented, but for complex numbers, which YAML has none of.

#: elements of one value that are written out; more belong into an expression
MOST = 256
#: characters of a list of equal numbers that are written out
LONG = 60

#: dtype -> how far a written number may be off, relatively: a tenth of the comparison's or less.
#: A dtype that is not here is written exactly.
_FREEDOM = {"float32": 2e-7, "float64": 1e-12, "complex64": 2e-7, "complex128": 1e-12}
_DIGITS = 17
_WHOLE = 1e15


class CannotWordError(Exception):
    """A value has no short form; the message says why, as the end of `x ...`.

    >>> word_value([1, 2.5, True])
    '[1, 2.5, true]'

    A tensor of a thousand elements is written as `full(1000, 0)` where that is what it is, and has
    no short form where no such call makes it.
    """


def word_value(value: Any) -> str:
    """Return a value as one line of flow YAML. Raises CannotWordError."""
    if isinstance(value, list | tuple) and any(_is_tensors(item) for item in value):
        return "[" + ", ".join(word_value(item) for item in value) + "]"
    if isinstance(value, np.ndarray | np.generic):
        return _tensor(np.asarray(value))
    if isinstance(value, bool | int | float):
        return number(value)
    if isinstance(value, complex):
        return f'"{_complex(value, "complex128")}"'
    if isinstance(value, range):
        value = list(value)
    return plain(value)


def _is_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_tensors(item) for item in value)
    return isinstance(value, np.ndarray | np.generic)


def _tensor(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.kind == "c" and not array.imag.any():
        array = array.real
    if array.size == 0:
        shape = list(array.shape)
        return "[]" if shape == [0] else f"{{shape: {shape}}}"
    text = _write_nested(array) if array.size <= MOST else None
    if text is not None and len(text) <= LONG:
        return text
    first = array.reshape(-1)[0]
    if array.ndim and array.dtype.kind != "c" and bool((array == first).all()):
        return f"{{value: {_item(first)}, shape: {list(array.shape)}}}"
    if text is None:
        message = f"has {array.size} elements: state them as an expression (at most {MOST} are "
        message += "written out)"
        raise CannotWordError(message)
    return text


def _write_nested(array: np.ndarray[Any, Any]) -> str:
    if array.ndim == 0:
        return _item(array[()])
    if array.dtype.kind == "c" and array.ndim == 1:
        # a number alone would be text; a list of them is one expression
        return '"[' + ", ".join(_complex(item, array.dtype.name) for item in array) + ']"'
    return "[" + ", ".join(_write_nested(part) for part in array) + "]"


def _item(item: Any) -> str:
    kind, name = item.dtype.kind, item.dtype.name
    if kind == "b":
        return number(bool(item))
    if kind in "iu":
        return number(int(item))
    if kind == "c":
        return f'"{_complex(item, name)}"'
    return number(_fewest(item, name))


def _fewest(item: Any, dtype: str) -> float:
    """Return the number of fewest digits near a float."""
    exact = float(item)
    if not math.isfinite(exact):
        return exact
    freedom = _FREEDOM.get(dtype)
    for digits in range(1, _DIGITS):
        near = float(f"{exact:.{digits}g}")
        if freedom is None:
            if type(item)(near) == item:
                return near
        elif abs(near - exact) <= freedom * abs(exact):
            return near
    return exact


def _complex(item: Any, dtype: str) -> str:
    part = np.float32 if dtype == "complex64" else np.float64
    real, imaginary = (
        number(_fewest(part(each), part.__name__)) for each in (item.real, item.imag)
    )
    if imaginary == "0":
        return real
    sign, size = ("-", imaginary[1:]) if imaginary.startswith("-") else ("+", imaginary)
    return f"{real} {sign} {size}j"


def number(value: float) -> str:
    """Return a boolean, an integer or a float as YAML 1.2 writes it.

    >>> number(True), number(2.0), number(float("inf"))
    ('true', '2', '.inf')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    if value == int(value) and abs(value) < _WHOLE:
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def plain(value: Any) -> str:
    """Return a plain object as one line of flow YAML. Raises CannotWordError."""
    try:
        text = yaml.safe_dump(
            _plain(value), default_flow_style=True, width=math.inf, allow_unicode=True
        )
    except yaml.YAMLError:
        message = f"is a {type(value).__name__}, which YAML cannot say"
        raise CannotWordError(message) from None
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
