"""Delta debugging: the smallest part of a list that still has a property."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Return a part of `items`, in order, for which `holds` and of which no item can go alone.

    `holds` is true of all items, and is asked of parts; the empty list is asked first. The
    algorithm ddmin of Zeller and Hildebrandt (2002): parts, then their complements, ever finer.
    """
    kept = list(items)
    if kept and holds([]):
        return []
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if len(chunks) > 1 and holds(chunk)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        rest = (_without(kept, at, size) for at in range(0, len(kept), size))
        smaller = next((each for each in rest if each and holds(each)), None)
        if smaller is not None:
            kept, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(len(kept), 2 * parts)
    return kept


def _without(items: list[T], at: int, size: int) -> list[T]:
    return items[:at] + items[at + size :]
