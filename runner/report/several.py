"""Several reports of one run behind one listener, each to a target of its own.

A report that fails costs the run nothing and the other reports nothing: it is left out, its target
is not touched, and it is told at the end. Those that have a target are written beside the run
(:mod:`runner.report.aside`); what people read is written at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from runner.problems import Problem, ScenarioError
from runner.report.aside import Aside
from runner.report.pictures import forget
from runner.report.target import STANDARD_OUTPUT, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.report.formats import Format
    from runner.results import Outcome, Report, Result
    from runner.scenario import Scenario

#: a report with such a name would take the place of a scenario
_SCENARIOS = (".yaml", ".yml")


@dataclass(slots=True, eq=False)
class _Entry:
    """A report, where it goes (None: it has no target of its own), and why it failed.

    `unread` is one whose reader has left: it is told nothing more, and that is no failure.
    """

    name: str
    report: Report
    target: Target | None = None
    failure: str | None = None
    unread: bool = False
    essential: bool = False


class Reports:
    """A :class:`runner.results.Report` of many. As a context manager it leaves nothing behind."""

    def __init__(
        self, terminal: Report | None = None, others: Mapping[str, Report] | None = None
    ) -> None:
        """Begin with reports that need no target, each with the name by which it is told.

        What goes wrong inside of the one for people ends the run; that its output is full or closed
        does not.
        """
        self._entries = [_Entry(name, report) for name, report in (others or {}).items()]
        if terminal is not None:
            self._entries.insert(0, _Entry("for people", terminal, essential=True))
        self._begun = False
        self._aside = Aside()
        self.traces = False

    def open(self, wanted: Sequence[tuple[Format, str]]) -> Self:
        """Open each report's path. Raises ScenarioError, naming every path that cannot be used."""
        problems: list[Problem] = []
        taken: dict[str, str] = {}
        for kind, path in wanted:
            try:
                target = _target(kind, path, taken)
            except (OSError, ValueError) as error:
                problems.append(_cannot(kind.option, path, error))
                continue
            taken[target.identity] = kind.option
            entry = _Entry(f"{kind.option} {path}", kind.make(target.file), target)
            self._entries.append(entry)
            self.traces = self.traces or kind.traces
        if problems:
            self.close()
            raise ScenarioError(problems)
        return self

    def __enter__(self) -> Self:
        """Keep the targets open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them, whatever happened."""
        self.close()

    # ------------------------------------------------------------------ the protocol of a report

    def begin(self, total: int) -> None:
        """Tell all."""
        self._begun = True
        for entry in self._entries:
            _tell_one(entry, partial(_begin, entry.target, total))

    def running(self, scenario: Scenario) -> None:
        """Tell all."""
        self._tell_beside(lambda report: report.running(scenario))

    def finish(self, result: Result) -> None:
        """Tell all."""
        self._tell_beside(lambda report: report.finish(result), forget)

    def end(self, outcome: Outcome) -> None:
        """Tell all, and let every report appear in its place."""
        if not self._begun:  # interrupted before anything was read
            self.begin(len(outcome.results))
        self._aside.done()
        # what people read comes last: it may lead where no reader takes anything
        for entry in sorted(self._entries, key=lambda entry: entry.target is None):
            _tell_one(entry, lambda report: report.end(outcome))
            if entry.failure is None and not entry.unread and entry.target is not None:
                try:
                    entry.target.keep()
                except BrokenPipeError:
                    entry.unread = True
                except OSError as error:
                    entry.failure = error.strerror or str(error)

    # ------------------------------------------------------------------ around it

    @property
    def failures(self) -> list[str]:
        """Why reports are missing, a sentence each."""
        return [
            f"the report {entry.name} cannot be written: {entry.failure}"
            for entry in self._entries
            if entry.failure is not None
        ]

    @property
    def lost(self) -> bool:
        """Whether a report is missing that was asked for."""
        return any(entry.failure and entry.target is not None for entry in self._entries)

    def close(self) -> None:
        """Discard what no end was reached for."""
        try:
            self._aside.done()
        finally:
            for entry in self._entries:
                if entry.target is not None:
                    entry.target.discard()

    def _tell_beside(
        self, say: Callable[[Report], None], after: Callable[[], None] | None = None
    ) -> None:
        """Tell people at once, and the others beside the run; then do what comes `after`."""
        beside = [entry for entry in self._entries if entry.target is not None]
        for entry in self._entries:
            if entry.target is None:
                _tell_one(entry, say)

        def tell() -> None:
            for entry in beside:
                _tell_one(entry, say)
            if after is not None:
                after()

        if beside:
            self._aside.do(tell)
        elif after is not None:
            after()


def _tell_one(entry: _Entry, say: Callable[[Report], None]) -> None:
    if entry.failure is not None or entry.unread:
        return
    try:
        say(entry.report)
    except BrokenPipeError:
        entry.unread = True
    except Exception as error:
        if entry.essential and not isinstance(error, OSError):
            raise
        entry.failure = _reason(error)


def _begin(target: Target | None, total: int, report: Report) -> None:
    if target is not None:
        target.start()
    report.begin(total)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}; this is a fault of scenario-runner, please report it"


def _target(kind: Format, path: str, taken: dict[str, str]) -> Target:
    """Open a path that no other report has. Raises OSError or ValueError."""
    place = STANDARD_OUTPUT if path == STANDARD_OUTPUT else os.path.realpath(path)
    if place in taken:
        message = f"{taken[place]} is written there too"
        raise ValueError(message)
    if place.endswith(_SCENARIOS):
        message = "that is the name of a scenario; a report would replace it"
        raise ValueError(message)
    return Target(path, streams=kind.streams)


def _cannot(option: str, path: str, error: OSError | ValueError) -> Problem:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Problem(
        code="report_unwritable",
        message=f"the report {option} {path} cannot be written: {reason or error}",
    )
