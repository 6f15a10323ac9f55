"""Answers -> edits: the value spans that are open or wrong, stated anew."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runner.bless.asking import REST, Answer
from runner.bless.places import is_long_form
from runner.bless.refusal import refuse
from runner.bless.saying import said
from runner.bless.wording import worded
from runner.language.splice import Edit, below, indentation, line_start, newline
from runner.operations.entries import Undefined, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runner.bless.drafting import Draft
    from runner.bless.selectors import Stated
    from runner.language.spans import Span
    from runner.trace import Value

#: what stands between two commas; a comma inside quotes is none
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|,(?! )|[^,"'])+(?:, )?""")
#: the number in an author's `full(shape, number)`
_FULL = re.compile(r"full\([^()]*(?:\[[^\]]*\])?[^()]*, (-?\d+(?:\.\d+)?)\)")
#: columns of a line, unless what must not be broken is longer
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One value in the draft: its key, the whole value, and the `expect` that it stands in."""

    key: Span
    value: Span
    parent: Span


def restated(
    draft: Draft, entry: Entry, found: Iterable[Answer], groups: Mapping[frozenset[int], str]
) -> Iterator[Edit]:
    """Yield the edits that make one expectation true. Raises RefusedError where none can."""
    by_path: dict[tuple[int, ...], list[Answer]] = defaultdict(list)
    for answer in found:
        by_path[answer.path].append(answer)
    for path, given in by_path.items():
        leaf, above = _leaf(entry.value, path)
        if is_long_form(leaf):
            yield from _long_form(draft, entry, leaf, given, groups)
        elif leaf.start in draft.open or any(answer.wrong for answer in given):
            _police(draft, entry, leaf, given)
            kept = _refilled(draft, leaf, given)
            if kept is not None:
                yield kept
                continue
            made = said(entry.key, given, worded, groups, rest=above is None)
            yield _replaced(draft.text, entry, leaf, above, made)


def _leaf(value: Span, path: tuple[int, ...]) -> tuple[Span, tuple[Span, Span] | None]:
    """Return the value at the end of a path, and its key with the mapping that it stands in."""
    above = None
    for step in path:
        _police_dressed(value)
        plain = [entry for entry in value.entries if entry[0].text != "else"]
        rest = [entry for entry in value.entries if entry[0].text == "else"]
        key, inner = rest[0] if step == REST else plain[step]
        above, value = (key, value), inner
    return value, above


def _police(draft: Draft, entry: Entry, leaf: Span, given: Sequence[Answer]) -> None:
    _police_dressed(leaf)
    undefined = [answer for answer in given if isinstance(answer.value, Undefined)]
    everywhere = len(undefined) == len(given)
    if undefined and (everywhere or leaf.start not in draft.open):
        value = undefined[0].value
        message = f"`{entry.key.text}` is undefined on {_ranks(undefined)} after {value.cause}"
        refuse("value_undefined", message + ": no value may be relied on", entry.key.line)
    if all(answer.value is None for answer in given):
        message = f"`{entry.key.text}` does not exist on {_ranks(given)}"
        refuse("value_undefined", message, entry.key.line)


def _police_dressed(span: Span) -> None:
    if span.kind == "alias" or span.dressed:
        message = "this value has an anchor, an alias or a tag: to change it here could change it "
        refuse("shared_value", message + "elsewhere; write it out", span.line)


def _ranks(given: Sequence[Answer]) -> str:
    ranks = sorted({answer.rank for answer in given})
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _refilled(draft: Draft, leaf: Span, given: Sequence[Answer]) -> Edit | None:
    """Return the edit of the number in an author's `full(shape, number)`, if only that is wrong."""
    found = _FULL.search(draft.text, leaf.start, leaf.end)
    if found is None or leaf.start in draft.open:
        return None
    if found.start() > leaf.start + 1 or found.end() < leaf.end - 1:
        return None  # there is more around it than quotes
    texts = {_filling(answer) for answer in given}
    text = texts.pop()
    if texts or text is None:
        return None
    return Edit(start=found.start(1), end=found.end(1), text=text)


def _filling(answer: Answer) -> str | None:
    """Return the number that a tensor holds everywhere; None where it has several, or no place."""
    value = answer.value
    if "extent" in answer.wrong or not isinstance(value, np.ndarray) or not value.size:
        return None
    if value.dtype.kind not in "iuf" or bool((value != value.reshape(-1)[0]).any()):
        return None
    return worded(value.reshape(-1)[0])


# ---------------------------------------------------------------------------- the long form


def _text_of_dtype(value: Value) -> str:
    return dtype_name(value.dtype)


def _text_of_shape(value: Value) -> str:
    return str(list(value.shape))


_PARTS = {"value": worded, "dtype": _text_of_dtype, "shape": _text_of_shape}


def _long_form(
    draft: Draft,
    entry: Entry,
    leaf: Span,
    given: Sequence[Answer],
    groups: Mapping[frozenset[int], str],
) -> Iterator[Edit]:
    """Yield the edits of the parts of a `{value: ..., dtype: ..., shape: ...}`."""
    wrong = {part.replace("extent", "value") for answer in given for part in answer.wrong}
    for name, text_of in _PARTS.items():
        part = leaf.get(name)
        if part is not None and (part.start in draft.open or name in wrong):
            _police(draft, entry, part, given)
            made = said(entry.key, given, text_of, groups)
            yield _fitted(draft.text, entry, part, made.line)
    if "value" in wrong and leaf.get("value") is None:
        message = f"`{entry.key.text}` states no value, and is not what it states"
        refuse("not_proved", message, entry.key.line)


# ---------------------------------------------------------------------------- how it is laid out


def _replaced(
    text: str,
    entry: Entry,
    leaf: Span,
    above: tuple[Span, Span] | None,
    made: Stated,
) -> Edit:
    if made.alone is not None:
        return _fitted(text, entry, leaf, made.alone)
    if above is None:
        return _whole(text, entry, made)
    key, mapping = above
    glue = ", "
    if not mapping.flow:
        glue = newline(text) + " " * indentation(text, mapping)
    parts = [f"{selector}: {value}" for selector, value in made.entries]
    return Edit(start=key.start, end=max(key.end, leaf.end), text=glue.join(parts))


def _whole(text: str, entry: Entry, made: Stated) -> Edit:
    """Return the edit that states ranks that differ: in one line where it fits."""
    span = entry.value
    start = _after_key(text, entry)
    column = entry.key.start - line_start(text, entry.key.start)
    fits = start - line_start(text, start) + 1 + len(made.line) <= WIDTH
    if fits or entry.parent.flow:
        return _fitted(text, entry, span, made.line)
    indent = newline(text) + " " * (column + 2)
    lines = "".join(f"{indent}{selector}: {value}" for selector, value in made.entries)
    return below(text, start, span, lines)


def _fitted(text: str, entry: Entry, span: Span, value: str) -> Edit:
    """Return the edit that puts a value in place of a span, broken where the line is too long."""
    start, end = span.start, span.end
    block = span.kind in {"mapping", "sequence"} and not span.flow
    if block and span is entry.value:
        start = _after_key(text, entry)
        value = " " + value  # what was below its key now stands beside it
    at = start - line_start(text, start)
    if at + len(value) > WIDTH:
        value = broken(value, at, indentation(text, entry.parent) + 4, newline(text))
    return Edit(start=start, end=end, text=value)


def _after_key(text: str, entry: Entry) -> int:
    return text.index(":", entry.key.end) + 1


def broken(value: str, at: int, indent: int, line_end: str) -> str:
    """Return flow YAML with line breaks after commas; `at` is the column where it begins."""
    lines, line = [], ""
    room = WIDTH - at
    for part in _PART.findall(value):
        if line and len(line) + len(part.rstrip()) > room:
            lines.append(line.rstrip())
            line, room = part, WIDTH - indent
        else:
            line += part
    return (line_end + " " * indent).join([*lines, line])
