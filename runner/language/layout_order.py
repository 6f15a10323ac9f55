"""The order of keys: at the top of a file and in a step, where they can be moved safely.

Takes a text that :func:`runner.language.layout_lines.indented` made. An entry moves with all its
lines and with the comments right above it. Where it is not certain what a comment belongs to, and
where anchors make the order matter, the keys stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.language.layout_scan import scanned
from runner.language.tree import Mapping, Node, Sequence, key_text
from runner.language.whole_file import TOP_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

#: `inputs` stands in a file that others use where another has `world_size`
TOP_ORDER = (*TOP_KEYS[:4], "inputs", *TOP_KEYS[4:])

#: the action stands between `ranks` and `as`
BEFORE_ACTION = ("name", "for", "ranks")
AFTER_ACTION = ("steps", "as", "expect")

#: comments that are about the file, not about the key below
_HEADERS = ("# yaml-language-server:", "#!")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The lines of a text, which change, and those that hold no token: `gaps`, of them `comments`.

    A gap stays a gap although entries move, because a whole mapping is ordered at once, the inner
    one first, and an entry begins and ends with a line that is none.
    """

    lines: list[str]
    gaps: frozenset[int]
    comments: frozenset[int]


def ordered(text: str, tree: Node) -> str:
    """Return a text with the keys of its top and of its steps in their order.

    `tree` is the tree of `text`. Raises ExoticLayoutError where the text cannot be understood.
    """
    found = scanned(text)
    if found.anchors or not isinstance(tree, Mapping):
        return text
    held = found.rows.keys() | found.inside.keys()
    whole = _Text(
        lines=list(found.lines),
        gaps=frozenset(line for line in range(len(found.lines)) if line not in held),
        comments=frozenset(found.comments()),
    )
    end = len(whole.lines)
    _steps(tree, end, whole)
    _sort(_entries(tree), end, whole, _top_rank)
    return "\n".join(whole.lines)


def is_step_list(key: str) -> bool:
    """Whether the value of a key is a list of steps."""
    return key == "steps"


def _steps(mapping: Mapping, end: int, whole: _Text) -> None:
    """Order the keys of the steps in a mapping that ends before line `end`, innermost first."""
    entries = _entries(mapping)
    for number, (key, value) in enumerate(mapping.entries):
        if not is_step_list(key_text(key)) or not isinstance(value, Sequence):
            continue
        last = entries[number + 1][1] if entries and number + 1 < len(entries) else end
        starts = [*(_dash(item, whole.lines) for item in value.items), last]
        for item, following in zip(value.items, starts[1:], strict=True):
            if isinstance(item, Mapping):
                _steps(item, following, whole)
                _sort(_entries(item), following, whole, _step_rank)


def _entries(mapping: Mapping) -> list[tuple[str, int, int]]:
    """Return key, line and column of each entry of a block mapping; nothing of a flow mapping."""
    if not mapping.entries or mapping.mark is not mapping.entries[0][0].mark:
        return []
    return [(key_text(key), key.mark.line - 1, key.mark.column - 1) for key, _ in mapping.entries]


def _dash(item: Node, lines: list[str]) -> int:
    """Return the line of an item's dash, which may stand alone above the item."""
    line = item.mark.line - 1
    if lines[line][: item.mark.column - 1].strip():
        return line
    above = (each for each in range(line - 1, -1, -1) if lines[each].lstrip().startswith("-"))
    return next(above, line)


def _top_rank(key: str) -> int:
    return TOP_ORDER.index(key) if key in TOP_ORDER else len(TOP_ORDER)


def _step_rank(key: str) -> int:
    if key in BEFORE_ACTION:
        return BEFORE_ACTION.index(key)
    place = len(BEFORE_ACTION) + 1
    return place + AFTER_ACTION.index(key) if key in AFTER_ACTION else place - 1


def _sort(
    entries: list[tuple[str, int, int]], end: int, whole: _Text, rank: Callable[[str], int]
) -> None:
    """Put the lines of one mapping's entries in order, in place; the number of lines stays."""
    order = sorted(range(len(entries)), key=lambda number: rank(entries[number][0]))
    if order == list(range(len(entries))):
        return
    column = entries[0][2]
    chunks = _chunks(entries, end, whole)
    if chunks is None:
        return
    first, after = chunks[0][0], chunks[-1][1]
    texts = [whole.lines[begin:stop] for begin, stop in chunks]
    prefix = texts[0][0][:column]
    if prefix.strip() not in {"", "-"}:
        return
    texts[0][0] = " " * column + texts[0][0][column:]
    made = _with_blanks_between([texts[number] for number in order], texts[0])
    if prefix.strip() and made[0].lstrip().startswith("#"):
        return
    made[0] = prefix + made[0][column:]
    whole.lines[first:after] = made


def _with_blanks_between(moved: list[list[str]], was_first: list[str]) -> list[str]:
    """Join entries; blank lines above the one that is first now go above the one that was."""
    blanks = []
    while not moved[0][0].strip():
        blanks.append(moved[0].pop(0))
    return [
        line for chunk in moved for line in ([*blanks, *chunk] if chunk is was_first else chunk)
    ]


def _chunks(
    entries: list[tuple[str, int, int]], end: int, whole: _Text
) -> list[tuple[int, int]] | None:
    """Return the lines of each entry, its comments above included; None where that is unsafe."""
    starts = [line for _, line, _ in entries]
    column = entries[0][2]
    if len(set(starts)) < len(starts):
        return None
    bounds = [
        _content_end(start, following, whole.gaps)
        for start, following in zip(starts, [*starts[1:], end], strict=True)
    ]
    below = [line for line in range(bounds[-1], end) if line in whole.comments]
    if any(_indent(whole.lines[line]) >= column for line in below):
        return None
    for previous, start in zip(bounds, starts[1:], strict=False):
        above = [line for line in range(previous, start) if line in whole.comments]
        attached = list(range(start - len(above), start))
        if above != attached or any(_indent(whole.lines[line]) != column for line in above):
            return None
    if column == 0 and not _is_header(starts[0], whole):
        return None
    return list(zip([starts[0], *bounds[:-1]], bounds, strict=True))


def _content_end(start: int, end: int, gaps: frozenset[int]) -> int:
    """Return the line after the last one before `end` that belongs to the entry at `start`."""
    while end > start + 1 and end - 1 in gaps:
        end -= 1
    return end


def _is_header(start: int, whole: _Text) -> bool:
    """Whether what stands above the first key is certainly about the file."""
    above = start - 1
    return above not in whole.comments or whole.lines[above].startswith(_HEADERS)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
