"""The search: the smallest text so far, and every attempt to make it smaller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from runner.language.spans import spans
from runner.language.splice import Edit, splice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.language.spans import Span


class Progress(Protocol):
    """Hears of each attempt: how many there were, and how long the smallest text is."""

    def __call__(self, attempts: int, size: int) -> None:
        """Hear of one attempt."""


class ExhaustedError(Exception):
    """The attempts are used up."""


@dataclass(slots=True, kw_only=True)
class Search:
    """`text` holds whatever was accepted last; `holds` says whether a text shows the same fault."""

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
