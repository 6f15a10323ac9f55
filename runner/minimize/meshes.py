"""Meshes: a slice of one goes with all the ranks that stand in it.

Without the slice of a 2 x 4 mesh that is at 1 along its second dimension, ranks 1 and 5 are gone:

    0 1 2 3        0 . 2 3        0 1 2
    4 5 6 7   ->   4 . 6 7   =    3 4 5
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from runner.language.spans import spans as spans_of
from runner.language.splice import Edit, splice
from runner.minimize.ranks import smaller_worlds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.language.spans import Span
    from runner.minimize.search import Search


def reduce_meshes(search: Search) -> None:
    """Take slices away from meshes that hold the whole world, as long as one can go."""
    while any(search.tries(smaller) for smaller in _without_slices(search.text)):
        pass


def _without_slices(text: str) -> Iterator[str]:
    root = spans_of(text)
    world = root.get("world_size")
    if world is None or not world.text.isdigit():
        return
    count = int(world.text)
    for shape in _shapes(root):
        lengths = [int(each.text) for each in shape]
        if prod(lengths) != count:
            continue
        for axis, length in enumerate(lengths):
            narrower = splice(
                text, [Edit(start=shape[axis].start, end=shape[axis].end, text=str(length - 1))]
            )
            stride = prod(lengths[axis + 1 :])
            for gone in reversed(range(length if length > 1 else 0)):
                kept = [rank for rank in range(count) if rank // stride % length != gone]
                yield from smaller_worlds(narrower, count, kept)


def _shapes(root: Span) -> Iterator[list[Span]]:
    """Yield the numbers of each mesh whose shape is written as numbers."""
    groups = root.get("groups")
    for _, group in groups.entries if groups is not None else ():
        shape = group.get("shape")
        if shape is not None and shape.items and all(each.text.isdigit() for each in shape.items):
            yield shape.items
