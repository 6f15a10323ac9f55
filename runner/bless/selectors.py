"""Values by rank -> the fewest entries that state them: one for all, or a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: this many ranks in a row are a `range`
ROW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What is stated: `entries` are (selector, value); one without a selector holds for all."""

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


def stated(
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
    last = _rest(classes) if rest and all_asked else None
    entries = [
        (selector(tuple(ranks), groups), text) for text, ranks in classes.items() if text != last
    ]
    return Stated(entries=(*entries, *([("else", last)] if last is not None else [])))


def _rest(classes: Mapping[str, list[int]]) -> str | None:
    """Return the value of most ranks, where several share it: what `else` says."""
    if len(classes) < 2:  # noqa: PLR2004 -- `else` needs another
        return None
    most = max(classes, key=lambda text: (len(classes[text]), min(classes[text])))
    return most if len(classes[most]) > 1 else None


def selector(ranks: tuple[int, ...], groups: Mapping[frozenset[int], str]) -> str:
    """Return the key that selects some ranks: a rank, a group's name, a range or a list."""
    if len(ranks) == 1:
        return str(ranks[0])
    named = groups.get(frozenset(ranks))
    if named is not None:
        return named
    low, high = ranks[0], ranks[-1] + 1
    if len(ranks) >= ROW and high - low == len(ranks):
        return f'"range({low}, {high})"' if low else f'"range({high})"'
    return f'"{list(ranks)}"'
