"""What a watch says: a rule with the time and what changed, the verdicts, a line of counts."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from rich.rule import Rule

from runner.report.prose import Line, details, headline, milliseconds, more
from runner.report.terminal import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from runner.report.terminal import TerminalReport
    from runner.results import Result
    from runner.watching.files import Difference

#: names in one rule; the rest is counted
NAMED = 3
#: files of a round from which a terminal shows only what did not pass
MANY = 20


class Screen:
    """Prints through a terminal report: its console, its styles, its verbosity."""

    def __init__(self, report: TerminalReport) -> None:
        """Print where the report prints."""
        self._report = report
        self._quiet = False

    def round(self, difference: Difference | None, files: int) -> None:
        """Part a round from the one before: when it is, and what changed; None for the first."""
        self._quiet = files > MANY and self._report.is_terminal
        if difference is None:
            return
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        title = f"{now}  {_told(difference)}"
        self._report.console.print()
        self._report.console.print(Rule(title, align="left", style="dim"))

    def result(self, result: Result) -> None:
        """Print a verdict, whole."""
        if self._quiet and result.verdict.status == "PASSED":
            return
        lines = [headline(result), *details(result)]
        self._report.print([*lines, *more(result.verdict)] if self._report.verbose else lines)

    def abandoned(self, case: str) -> None:
        """Say that a case is not waited for, because a file changed."""
        self._report.print([Line(f"{'abandoned':<12} {case}: a file changed", "dim")])

    def summary(
        self, judged: Sequence[Result], everything: Sequence[Result], took_s: float
    ) -> None:
        """Print what the round came to, and what all files came to where that is more."""
        text = f"{_counted(judged)} in {milliseconds(took_s)}" if judged else "nothing to run"
        if len(everything) > len(judged):
            text += f"; all {len(everything)}: {_counted(everything)}"
        well = all(each.verdict.status in {"PASSED", "UNSUPPORTED"} for each in everything)
        self._report.print([Line(text, "PASSED" if well else "FAILED")])

    def waiting(self, files: int, trouble: str | None) -> None:
        """Say, once, what a person can do now."""
        noun = "file" if files == 1 else "files"
        self._report.print(
            [Line(f"watching {files} {noun}: a save runs what it changes, Ctrl-C ends", "dim")]
        )
        if trouble:
            text = f"changes are looked for every few seconds, the system cannot tell: {trouble}"
            self._report.print([Line(text, "INCONCLUSIVE")])

    def stopped(self) -> None:
        """Say that the watch is over."""
        self._report.print([Line("stopped watching", "dim")])

    @contextmanager
    def busy(self, case: str) -> Iterator[None]:
        """Show that a case takes its time, on a terminal."""
        if not self._report.is_terminal:
            yield
            return
        with self._report.console.status(Line(f"running {case}").printable):
            yield


def _told(difference: Difference) -> str:
    """Return what changed in words: `ring.yaml changed, old.yaml deleted`."""
    changed = [path for path in difference.changed if path not in difference.gone]
    parts = [
        f"{_names(paths)} {verb}"
        for paths, verb in (
            (changed, "changed"),
            (difference.appeared, "appeared"),
            (difference.gone, "deleted"),
        )
        if paths
    ]
    return Line(", ".join(parts) or "run again").printable


def _names(paths: Iterable[Path]) -> str:
    names = [path.name for path in paths]
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def _counted(results: Sequence[Result]) -> str:
    statuses = [result.verdict.status for result in results]
    parts = [f"{statuses.count(s)} {word}" for s, word in WORDS.items() if s in statuses]
    return ", ".join(parts) or "no case"
