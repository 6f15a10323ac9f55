"""What the pipeline takes and gives: a selection in, results and an exit code out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from runner.language.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.plan import Plan
    from runner.scenario import Scenario
    from runner.trace import Trace
    from runner.verdict import Verdict

PASSED, FAILED, INVALID, INTERRUPTED = 0, 1, 2, 130
INCONCLUSIVE, NOTHING_SELECTED = 3, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which files and cases are meant, and with which parameters and bounds they are read."""

    paths: tuple[str, ...]
    keyword: str | None = None
    tags: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one case; of a whole file where it is INVALID (`case` is then its path)."""

    file: str
    case: str
    verdict: Verdict
    duration_s: float = 0.0
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A case before it runs: its plan, what the reference predicts, and the static verdict."""

    scenario: Scenario
    plan: Plan | None
    predicted: Trace | None
    verdict: Verdict
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All files, read: the selected cases, and a result for each file that is invalid."""

    scenarios: tuple[Scenario, ...]
    invalid: tuple[Result, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a whole command came to: every result so far, whether it was cut short, how long."""

    results: tuple[Result, ...]
    interrupted: bool = False
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code: interrupted, invalid, failed, inconclusive, nothing selected, passed."""
        found = {result.verdict.status for result in self.results}
        if self.interrupted:
            return INTERRUPTED
        if not self.results:
            return NOTHING_SELECTED
        codes = {"INVALID": INVALID, "FAILED": FAILED, "INCONCLUSIVE": INCONCLUSIVE}
        return next((code for status, code in codes.items() if status in found), PASSED)


class Executor(Protocol):
    """Runs plans on a backend: the launcher, or the worker that torchrun started."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return what happened. Raises UnsupportedError or LaunchError."""


class Listener(Protocol):
    """Hears how far it is: a report on a terminal, a progress bar, nothing at all."""

    def begin(self, total: int) -> None:
        """Hear how many cases are selected."""

    def running(self, scenario: Scenario) -> None:
        """Hear that a case starts."""

    def finish(self, result: Result) -> None:
        """Hear what came of a case; called once for each result."""


class Report(Listener, Protocol):
    """A listener that also hears the end: it tells a person or a program what came of a run."""

    def end(self, outcome: Outcome) -> None:
        """Hear the whole; called once, also where the run was interrupted. No values in it."""
