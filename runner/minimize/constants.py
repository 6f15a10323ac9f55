"""One case of the matrix, and names that are replaced by what they stand for."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from runner.language.spans import Span, spans
from runner.language.splice import Edit, splice, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.minimize.search import Search

#: keys whose text is for people, or a word of its own
PROSE = frozenset({"name", "description", "tags", "version", "backends", "torch", "inputs"})
_SECTIONS = ("matrix", "parameters")


def one_case(text: str, number: int) -> str:
    """Return the text whose matrix has only the combination of case `number`."""
    matrix = spans(text).get("matrix")
    if matrix is None or not matrix.entries:
        return text
    lists = [value for _, value in matrix.entries]
    chosen = list(product(*(range(len(values.items)) for values in lists)))[number]
    edits: list[Edit] = []
    for values, kept in zip(lists, chosen, strict=True):
        gone = set(range(len(values.items))) - {kept}
        edits += without(text, values, gone) if gone else []
    return splice(text, edits)


def inline_constants(search: Search) -> None:
    """Write parameters and matrix keys of one value out wherever they are named."""
    for section in _SECTIONS:
        found = search.root.get(section)
        for name in [key.text for key, _ in found.entries] if found is not None else []:
            edits = _inlined(search.text, section, name)
            if edits is not None:
                search.edits(edits)


def _inlined(text: str, section: str, name: str) -> list[Edit] | None:
    root = spans(text)
    found = root.get(section)
    number = found.entry(name) if found is not None else None
    if found is None or number is None:
        return None
    value = found.entries[number][1]
    if value.kind == "sequence":
        if section != "matrix" or len(value.items) != 1:
            return None
        value = value.items[0]
    if value.kind != "scalar":
        return None
    edits = replaced(text, _others(root, section, number), name, text[value.start : value.end])
    if len(found.entries) > 1:
        return [*edits, *without(text, found, {number})]
    position = root.entry(section)
    return [*edits, *without(text, root, {position} if position is not None else set())]


def _others(root: Span, section: str, number: int) -> Iterator[Span]:
    """Yield every node that may name a constant."""
    for key, value in root.entries:
        if key.text == section:
            yield from (other for n, (_, other) in enumerate(value.entries) if n != number)
        elif key.text not in PROSE:
            yield value


def replaced(text: str, where: Iterator[Span], name: str, value: str) -> list[Edit]:
    """Return the edits that write `value` for a name: alone as it is, in an expression as text."""
    word = re.compile(rf"(?<![\w.'\"]){re.escape(name)}(?![\w'\"(])")
    inside = value.strip("\"'")
    inside = inside if re.fullmatch(r"[\w.]+", inside) else f"({inside})"
    edits = []
    for span in scalars(where):
        said = text[span.start : span.end]
        if span.text == name:
            edits.append(Edit(start=span.start, end=span.end, text=value))
            continue
        quote = said[:1] if said[:1] in {"'", '"'} else ""
        inner = said[len(quote) : len(said) - len(quote)]
        if word.search(inner):
            text_of = f"{quote}{word.sub(inside, inner)}{quote}"
            edits.append(Edit(start=span.start, end=span.end, text=text_of))
    return edits


def scalars(where: Iterator[Span]) -> Iterator[Span]:
    """Yield the scalars below some nodes, keys that are expressions among them."""
    waiting = list(where)
    while waiting:
        span = waiting.pop()
        if span.kind == "scalar":
            yield span
        for key, value in span.entries:
            if key.text not in PROSE:
                waiting.append(value)
                if not key.text.isidentifier():
                    waiting.append(key)
        waiting += span.items
