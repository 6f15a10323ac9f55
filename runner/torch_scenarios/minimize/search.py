"""The search: the smallest text so far, every attempt to make it smaller, and delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from torch_scenarios.errors import Edit
from torch_scenarios.source.edit import Span, spans, splice

# The search: the smallest text so far, and every attempt to make it smaller.


class Progress(Protocol):
    """Hears of each attempt: how many there were, and how long the smallest text is.

    >>> def hear(attempts: int, size: int) -> None:
    ...     print(f"{attempts} attempts, {size} characters")
    >>> hear(3, 120)
    3 attempts, 120 characters
    """

    def __call__(self, attempts: int, size: int) -> None:
        """Hear of one attempt."""


class ExhaustedError(Exception):
    """The attempts are used up.

    The smallest text so far is kept: it shows the same finding, and may not be minimal.
    """


class Search(Struct, kw_only=True):
    """`text` holds whatever was accepted last; `holds` says whether a text shows the same fault.

    >>> search = Search(text="steps: [a, b]", holds=lambda text: "b" in text, most=10)
    >>> search.tries("steps: [a]"), search.tries("steps: [b]"), search.text
    (False, True, 'steps: [b]')
    >>> search.attempts
    2

    A text is asked for once: two ways to shorten a file often come to the same one, and to run it
    may take seconds.
    """

    text: str
    holds: Callable[[str], bool]
    most: int
    progress: Progress | None = None
    attempts: int = 0
    _known: dict[str, bool] = field(default_factory=dict)

    @property
    def root(self) -> Span:
        """The spans of the smallest text so far."""
        return spans(self.text)

    def tries(self, text: str) -> bool:
        """Accept a text if it shows the same fault; raise ExhaustedError beyond the budget."""
        if text == self.text:
            return False
        if text not in self._known:
            if self.attempts >= self.most:
                raise ExhaustedError
            self.attempts += 1
            self._known[text] = self.holds(text)
            if self.progress is not None:
                self.progress(self.attempts, min(len(text), len(self.text)))
        if self._known[text]:
            self.text = text
        return self._known[text]

    def edits(self, edits: Iterable[Edit]) -> bool:
        """Accept the text with some edits made, if it shows the same fault."""
        return self.tries(splice(self.text, edits))


# Delta debugging: the smallest part of a list that still has a property.

T = TypeVar("T")


# Why not one after the other: of 64 steps of which two matter, trying each alone takes 64 runs and
# keeps the second one waiting for the first. Halves take some 2 log 64. Where the two lie in
# different halves neither half shows the fault, and only then are complements tried, and finer
# parts.
#
#     steps 1 2 3 4 5 6 7 8, of which 3 and 8 matter together
#     1-4 no, 5-8 no; quarters: without 1-2 yes; without 5-6 yes; 3 4 7 8 ...
def ddmin(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Return a part of `items`, in order, for which `holds` and of which no item can go alone.

    `holds` is true of all items, and is asked of parts; the empty list is asked first. The
    algorithm ddmin of Zeller and Hildebrandt (2002): parts, then their complements, ever finer.

    >>> ddmin([1, 2, 3, 4, 5, 6, 7, 8], lambda part: {3, 8} <= set(part))
    [3, 8]
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
        rest = (_remove_items(kept, at, size) for at in range(0, len(kept), size))
        smaller = next((each for each in rest if each and holds(each)), None)
        if smaller is not None:
            kept, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(len(kept), 2 * parts)
    return kept


def _remove_items(items: list[T], at: int, size: int) -> list[T]:
    return items[:at] + items[at + size :]
