"""Tensors: fewer elements, all that have to be alike at once, and the shortest way to say them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runner.language.splice import Edit, without
from runner.minimize.constants import scalars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.language.spans import Span
    from runner.minimize.search import Search

#: the first argument of what makes a tensor: its shape
_MADE = re.compile(r"\b(?:full|zeros|ones|arange|random|linspace|eye)\(\s*(\[[\d, ]+\]|\d+)")
#: what a loop's variable leaves behind that became a number
_SUM = re.compile(r"(\d{1,6}) ?([+-]) ?(\d{1,6})")
_NUMBER = re.compile(r"\d+")


def reduce_sizes(search: Search) -> None:
    """Make tensors as small as they can be: every size of its own value everywhere, then alone."""
    for size in sorted(_sizes(search.text, search.root), reverse=True):
        for smaller in sorted({1, 2, size // 2, size - 1}):
            if 0 < smaller < size and search.edits(
                resizing(search.text, search.root, size, smaller)
            ):
                break
    at = 0
    while at < len(found := _places(search.text, search.root)):
        start, end, size = found[at]
        for smaller in sorted({1, 2, size // 2, size - 1}):
            edit = Edit(start=start, end=end, text=str(smaller))
            if 0 < smaller < size and search.edits([edit]):
                break
        at += 1
    say_shorter(search)


def _sizes(text: str, root: Span) -> set[int]:
    lengths = {len(span.items) for span in _lists(root)}
    return {size for _, _, size in _places(text, root)} | {each for each in lengths if each > 1}


def _places(text: str, root: Span) -> list[tuple[int, int, int]]:
    """Return where the sizes stand that an expression or a `shape` states."""
    numbers = [
        number
        for span in scalars(iter(_values(root)))
        for made in _MADE.finditer(text, span.start, span.end)
        for number in _NUMBER.finditer(text, made.start(1), made.end(1))
    ]
    found = [(number.start(), number.end(), int(number[0])) for number in numbers]
    items = [item for shape in _shapes(root) for item in shape.items or [shape]]
    found += [(item.start, item.end, int(item.text)) for item in items if item.text.isdigit()]
    return sorted(found)


def _values(root: Span) -> list[Span]:
    return [value for key, value in root.entries if key.text in {"tensors", "steps", "expect"}]


def _every(root: Span) -> Iterator[Span]:
    waiting = _values(root)
    while waiting:
        span = waiting.pop()
        yield span
        waiting += span.children()


def _shapes(root: Span) -> Iterator[Span]:
    for span in _every(root):
        yield from (value for key, value in span.entries if key.text == "shape")


def _lists(root: Span) -> Iterator[Span]:
    """Yield the lists of data: rows of numbers, and rows of such rows."""
    for key, value in root.entries:
        if key.text in {"tensors", "expect", "steps"}:
            for span in _every_value(value, data=key.text == "tensors"):
                if span.kind == "sequence" and span.flow and _is_data(span):
                    yield span


def _every_value(span: Span, *, data: bool) -> Iterator[Span]:
    """Yield the nodes that are values: below `tensors`, and below `expect` beside steps."""
    if data:
        yield span
    for key, value in span.entries:
        if key.text not in {"ranks", "group_ranks"}:
            yield from _every_value(value, data=data or key.text == "expect")
    for item in span.items:
        yield from _every_value(item, data=data)


def _is_data(span: Span) -> bool:
    return all(
        item.kind == "scalar" or (item.kind == "sequence" and _is_data(item)) for item in span.items
    )


def resizing(text: str, root: Span, size: int, smaller: int) -> list[Edit]:
    """Return the edits that make every size of one value another."""
    edits = [
        Edit(start=start, end=end, text=str(smaller))
        for start, end, found in _places(text, root)
        if found == size
    ]
    for span in _lists(root):
        if len(span.items) == size:
            edits += without(text, span, set(range(smaller, size)))
    return edits


def say_shorter(search: Search) -> None:
    """Write `{value: v}` and `{else: v}` as v, `ranks: [0]` as 0, `1 + 2` as 3.

    And leave out that every rank takes a step, where all are listed.
    """
    at = 0
    while at < len(found := _shorter(search.text, search.root)):
        if not search.edits([found[at]]):
            at += 1


def _shorter(text: str, root: Span) -> list[Edit]:
    found = []
    world = root.get("world_size")
    size = int(world.text) if world is not None and world.text.isdigit() else 0
    everyone = [str(rank) for rank in range(size)]
    for span in _every(root):
        for number, (key, value) in enumerate(span.entries):
            if key.text == "ranks" and [item.text for item in value.items] == everyone:
                found += without(text, span, {number})
                continue
            single = value.items if key.text == "ranks" else []
            if [inner.text for inner, _ in value.entries] in (["value"], ["else"]):
                single = [value.entries[0][1]]
            if len(single) == 1 and value.flow:
                inner = text[single[0].start : single[0].end]
                found.append(Edit(start=value.start, end=value.end, text=inner))
            elif added := _SUM.fullmatch(value.text):
                total = int(added[1]) + int(added[2] + added[3])
                found.append(Edit(start=value.start, end=value.end, text=str(total)))
    return found
