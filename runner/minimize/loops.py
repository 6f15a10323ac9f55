"""Loops: fewer rounds, and a body without its loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runner.language.splice import Edit, line_end, line_start, splice
from runner.minimize.constants import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.language.spans import Span
    from runner.minimize.search import Search

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: loops that are small whatever they ran over
_FEW = ("[0]", "[0, 1]")


def reduce_loops(search: Search) -> None:
    """Let every loop run as few rounds as it takes, and stand its body in its place if one does."""
    number = 0
    while number < len(found := list(_loops(search.root))):
        if not _unrolled(search, *found[number]):
            _fewer_rounds(search, number)
            number += 1


def _loops(parent: Span) -> Iterator[tuple[Span, Span]]:
    """Yield each loop, and the list that it stands in, outer ones first."""
    steps = parent.get("steps")
    for step in steps.items if steps is not None else ():
        if step.get("for") is not None and steps is not None:
            yield step, steps
        yield from _loops(step)


def _fewer_rounds(search: Search, number: int) -> None:
    step, _ = list(_loops(search.root))[number]
    over = step.get("for")
    if over is None or not over.entries:
        return
    values = over.entries[0][1]
    if values.kind != "scalar":
        return  # a list: its items are removed as others are
    if any(search.edits([Edit(start=values.start, end=values.end, text=few)]) for few in _FEW):
        return
    at = values.start
    while found := _NUMBER.search(search.text, at, list(_loops(search.root))[number][0].end):
        over = list(_loops(search.root))[number][0].get("for")
        if over is None or found.start() >= over.end:
            return
        rounds, at = int(found[0]), found.start()
        for fewer in sorted({0, 1, 2, rounds // 2, rounds - 1}):
            edit = Edit(start=at, end=found.end(), text=str(fewer))
            if 0 <= fewer < rounds and search.edits([edit]):
                break
        at += len(str(rounds))


def _unrolled(search: Search, step: Span, steps: Span) -> bool:
    """Try to put a loop's body in its place, its variable having the first or the second value."""
    over, body = step.get("for"), step.get("steps")
    if over is None or not over.entries or body is None or body.flow or steps.flow:
        return False
    text = search.text
    variable = over.entries[0][0].text
    top = text.rfind("-", 0, step.start)
    first = line_start(text, body.start)
    dedent = (body.start - first) - (top - line_start(text, top))
    for value in ("0", "1"):
        edits = replaced(text, iter([body]), variable, value)
        moved = [
            Edit(start=edit.start - first, end=edit.end - first, text=edit.text) for edit in edits
        ]
        end = line_end(text, body.end)
        lines = splice(text[first:end], moved).splitlines(keepends=True)
        inner = "".join(line[dedent:] if not line[:dedent].strip() else line for line in lines)
        whole = text[: line_start(text, top)] + inner + text[line_end(text, step.end) :]
        if search.tries(whole):
            return True
    return False
