"""Reductions of the tree: whatever can be left out of a list or a mapping is, level by level."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from runner.bless.places import is_section
from runner.language.splice import Edit, splice, without
from runner.minimize.ddmin import ddmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from runner.language.spans import Span
    from runner.minimize.search import Search

#: what a file says about itself, and where it runs: no part of the program
KEPT = frozenset(
    {
        *(
            "version",
            "name",
            "description",
            "tags",
            "world_size",
            "backends",
            "torch",
            "timeout",
            "debug",
        ),
        "steps",
    }
)
#: what is stated anew in the end, in the top-level `expect`
RESTATED = frozenset({"blocked", "dies"})
#: what the author says of how it ends is no part of the program either
CONCLUSIONS = RESTATED | {"outcome", "diagnosis", "raises"}
#: what makes more of a step if it is left out: every rank takes it, a receive takes from anyone
_FEWER = frozenset({"ranks", "src", "dst", "group_src", "group_dst", "peer"})


def reduce_coarse(search: Search) -> None:
    """Leave out sections, steps, groups and tensors."""
    for depth in (0, 1):
        _reduce_level(search, depth)


def reduce_tree(search: Search) -> None:
    """Leave out entries and items, coarse ones first, until none on any level can go alone."""
    depth = 0
    while _reduce_level(search, depth):
        depth += 1


def reduce_alike(search: Search) -> None:
    """Leave out what only makes sense together: an argument with one value in every step."""
    seen: set[tuple[str, str]] = set()
    while True:
        text = search.text
        found: dict[tuple[str, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        parents = list(_mappings(search.root))
        for parent in parents:
            for number in _removable(parent):
                key, value = parent.entries[number]
                found[key.text, text[value.start : value.end]][id(parent)].add(number)
        alike = [what for what, where in found.items() if len(where) > 1 and what not in seen]
        if not alike:
            return
        seen.add(alike[0])
        edits = _edits(text, found[alike[0]], parents)
        if edits is not None:
            search.edits(edits)


def _mappings(root: Span) -> Iterator[Span]:
    """Yield the arguments of every step."""
    steps = root.get("steps")
    waiting = list(steps.items) if steps is not None else []
    while waiting:
        span = waiting.pop(0)
        waiting += span.children()
        if span.kind == "mapping" and span.flow and span.entries:
            yield span


def removals(text: str, root: Span) -> Iterator[str]:
    """Yield the texts that lack one entry or item: what 1-minimal is about."""
    depth = 0
    while parents := list(_parents(root, depth)):
        for parent in parents:
            for number in _removable(parent):
                edits = _edits(text, {id(parent): {number}}, parents)
                if edits is not None:
                    yield splice(text, edits)
        depth += 1


def _reduce_level(search: Search, depth: int) -> bool:
    """Leave out what can go at a depth; return whether there is anything as deep."""
    text = search.text
    parents = list(_parents(search.root, depth))
    items = [(id(parent), number) for parent in parents for number in _removable(parent)]

    def holds(kept: Iterable[tuple[int, int]]) -> bool:
        gone: dict[int, set[int]] = defaultdict(set)
        for parent, number in set(items) - set(kept):
            gone[parent].add(number)
        edits = _edits(text, gone, parents)
        return edits is not None and search.tries(splice(text, edits))

    ddmin(items, holds)
    return bool(parents)


_STAYING = _FEWER | CONCLUSIONS | {"name"}


def _is_root(parent: Span) -> bool:
    return parent.get("steps") is not None and parent.get("world_size") is not None


def _parents(root: Span, depth: int) -> Iterator[Span]:
    """Yield the lists and mappings at a depth below the root."""
    level = [root]
    for _ in range(depth):
        level = [child for parent in level for child in _inner(parent)]
    yield from (span for span in level if span.items or span.entries)


def _inner(parent: Span) -> Iterator[Span]:
    kept = KEPT - {"steps"} if _is_root(parent) else CONCLUSIONS | {"name"}
    yield from parent.items
    yield from (value for key, value in parent.entries if key.text not in kept)


def _removable(parent: Span) -> list[int]:
    if parent.kind == "sequence":
        return list(range(len(parent.items)))
    kept = KEPT if _is_root(parent) else _STAYING
    return [
        number
        for number, (key, value) in enumerate(parent.entries)
        if key.text not in kept and not (key.text != "expect" and is_section(key, value))
    ]


def _edits(text: str, gone: dict[int, set[int]], parents: Sequence[Span]) -> list[Edit] | None:
    """Return the edits that leave some children out; None where a list would become empty.

    An empty tensor is another program than a small one; an operation without arguments is not.
    """
    edits: list[Edit] = []
    for parent in parents:
        numbers = gone.get(id(parent))
        if not numbers:
            continue
        if len(numbers) < len(parent.items) + len(parent.entries):
            edits += without(text, parent, numbers)
        elif parent.kind == "sequence":
            return None
        else:
            edits.append(_emptied(text, parent))
    return edits


def _emptied(text: str, parent: Span) -> Edit:
    if parent.flow:
        return Edit(start=parent.start, end=parent.end, text="{}")
    before = text[: parent.start].rstrip()
    return Edit(start=len(before), end=parent.end, text=" {}")
