"""A report that has nothing to say before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.results import Result
    from runner.scenario import Scenario


class AtEnd:
    """Hears everything of a run but its end in silence; the end is the heir's."""

    def begin(self, total: int) -> None:
        """Hear it in silence."""

    def running(self, scenario: Scenario) -> None:
        """Hear it in silence."""

    def finish(self, result: Result) -> None:
        """Hear it in silence."""
