"""What is asked of a picture: how wide, which ranks and steps, with values or without."""

from __future__ import annotations

from dataclasses import dataclass

#: steps that are all drawn; of more, unless others are asked for, the first and the last
MOST, FIRST, LAST = 40, 12, 18


class NoStepsError(ValueError):
    """The steps that are asked for are none of those that the picture has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`width` in characters; `ranks` None: as many as fit; `steps` from, to, from 1, both in."""

    width: int = 100
    values: bool = False
    ranks: tuple[int, ...] | None = None
    steps: tuple[int | None, int | None] | None = None

    def chosen(self, count: int) -> frozenset[int]:
        """Return which of `count` steps are drawn, numbered from 0. Raises NoStepsError."""
        if self.steps is not None:
            first, last = self.steps
            found = range(max(first or 1, 1) - 1, count if last is None else min(last, count))
            if not found:
                message = f"no step is drawn: the picture has steps 1 to {count}"
                raise NoStepsError(message)
            return frozenset(found)
        if count <= MOST:
            return frozenset(range(count))
        return frozenset(range(FIRST)) | frozenset(range(count - LAST, count))
