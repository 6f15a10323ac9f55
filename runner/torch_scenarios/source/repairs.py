"""Repairs of a text: a word spelt right, an argument added, a key moved, a step inserted.

Each function returns a :class:`Repair` of one file, or None where the text is written in a way that
it does not touch: an alias, a value over several lines, a mapping in another style.
"""

from __future__ import annotations

from torch_scenarios.errors import Edit, Mark, Repair, Source
from torch_scenarios.source.edit import (
    Span,
    find_comments,
    line_end,
    line_start,
    newline,
)
from torch_scenarios.source.tree import Mapping, Node, Scalar

_QUOTES = ("'", '"')


def extent(mark: Mark) -> tuple[int, int] | None:
    """Return the characters that a mark covers; None where it names no end."""
    if mark.end_column is None:
        return None
    source = mark.source
    start = source.offset(mark.line, mark.column)
    end = source.offset(mark.end_line or mark.line, mark.end_column)
    return (start, end) if start < end <= len(source.text) else None


def respell(mark: Mark, word: str, meant: str, *, sure: bool) -> Repair | None:
    """Return the repair of a misspelt word inside of a mark."""
    covered = extent(mark)
    if covered is None:
        return None
    start, end = covered
    written = mark.source.text[start:end]
    if written[:1] in _QUOTES and written[1:-1] == word:
        start, end = start + 1, end - 1
    elif written.count(word) == 1 and not written.startswith(_QUOTES):
        start += written.index(word)
        end = start + len(word)
    if mark.source.text[start:end] != word:
        return None
    edit = Edit(start=start, end=end, text=meant)
    title = f"write `{meant}` in place of `{word}`"
    return Repair(title=title, source=mark.source, edits=(edit,), sure=sure)


def _append(arguments: Node, text: str) -> Edit | None:
    """Return the edit that adds `text` at the end of arguments in braces; None for other ones."""
    covered = extent(arguments.mark)
    if not isinstance(arguments, Mapping) or covered is None:
        return None
    start, end = covered
    whole = arguments.mark.source.text[start:end]
    if not whole.startswith("{") or not whole.endswith("}"):
        return None
    inner = whole[1:-1].rstrip()
    at = start + 1 + len(inner)
    joined = text if not inner.strip() else f" {text}" if inner.endswith(",") else f", {text}"
    return Edit(start=at, end=at, text=joined)


def add_argument(arguments: Node, text: str) -> Repair | None:
    """Return the repair that adds an argument, as `async_op: true`, inside of braces."""
    edit = _append(arguments, text)
    if edit is None:
        return None
    return Repair(title=f"add `{text}`", source=arguments.mark.source, edits=(edit,))


def move_inside(key: Node, value: Node, arguments: Node, taker: str) -> Repair | None:
    """Return the repair that moves `key: value`, on another line, into the arguments."""
    source, covered = key.mark.source, extent(key.mark)
    if covered is None or not isinstance(key, Scalar):
        return None
    text = source.text
    start, end = line_start(text, covered[0]), line_end(text, covered[0])
    line = text[start:end]
    inner = extent(value.mark)
    alone = not text[start : covered[0]].strip() and inner is not None and inner[1] <= end
    comment = line[inner[1] - start :].strip() if inner is not None and alone else ""
    if not alone or inner is None or (comment and not comment.startswith("#")):
        return None
    said = f"{text[covered[0] : covered[1]]}: {text[inner[0] : inner[1]]}"
    edit = _append(arguments, said)
    if edit is None:
        return None
    gone = Edit(start=start, end=min(len(text), end + len(newline(text))))
    if comment:  # it stays, on its line
        gone = Edit(start=covered[0], end=inner[1] + line[inner[1] - start :].index("#"))
    title = f"move `{said}` into `{taker}`"
    return Repair(title=title, source=source, edits=(edit, gone))


# Steps, by their spans: the text is well-formed YAML here.


def step_of(root: Span, mark: Mark) -> tuple[Span, int] | None:
    """Return the list that holds the step with the call at `mark`, and its number there."""
    for parent in _lists(root):
        for number, item in enumerate(parent.items):
            if any((key.line, key.column) == (mark.line, mark.column) for key, _ in item.entries):
                return parent, number
    return None


def _lists(span: Span) -> list[Span]:
    found = [span] if span.kind == "sequence" else []
    for child in span.children():
        found += _lists(child)
    return found


def insert_step(text: str, parent: Span, number: int, step: str) -> Edit | None:
    """Return the edit that puts a step before the item of a number, or behind the last one."""
    if parent.flow or not parent.items:
        return None
    dashes = [_dash(text, item) for item in parent.items]
    first = dashes[0]
    if first is None:
        return None
    indent = " " * (first - line_start(text, first))
    line = f"{indent}- {step}{newline(text)}"
    if number < len(parent.items):
        dash = dashes[number]
        if dash is None or text[line_start(text, dash) : dash].strip():
            return None
        at = find_comments(text, line_start(text, dash), dash)
        return Edit(start=at, end=at, text=line)
    end = line_end(text, parent.items[-1].end)
    if not text[end:]:
        return Edit(start=end, end=end, text=newline(text) + line.rstrip("\r\n"))
    at = end + len(newline(text))
    return Edit(start=at, end=at, text=line)


def _dash(text: str, item: Span) -> int | None:
    """Return where the dash before an item of a block is; None where it is not on its line."""
    start = line_start(text, item.start)
    at = text.rfind("-", start, item.start)
    return at if at >= 0 and not text[at + 1 : item.start].strip() else None


def append_key(text: str, step: Span, said: str) -> Edit | None:
    """Return the edit that puts a key, as `as: work`, at the end of a step."""
    if step.flow:
        inner = text[step.start + 1 : step.end - 1].rstrip()
        at = step.start + 1 + len(inner)
        return Edit(start=at, end=at, text=f", {said}")
    if not step.entries:
        return None
    column = step.entries[0][0].start - line_start(text, step.entries[0][0].start)
    end = line_end(text, step.end)
    return Edit(start=end, end=end, text=f"{newline(text)}{' ' * column}{said}")


def rename_key(source: Source, step: Span, call: str, key: str, name: str) -> Edit | None:
    """Return the edit that gives an argument of a call another name."""
    arguments = step.get(call)
    entries = [] if arguments is None else arguments.entries
    found = next((each for each, _ in entries if each.text == key), None)
    if found is None or source.text[found.start : found.end] != key:
        return None
    return Edit(start=found.start, end=found.end, text=name)
