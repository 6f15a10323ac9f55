"""Results on a terminal, or as plain lines where there is none.

On a terminal a progress bar moves and only what went wrong is printed; in a log every case has its
line. Colours follow NO_COLOR and FORCE_COLOR, as `rich` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from runner.report.prose import Line, Style, details, headline, milliseconds, more

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from rich.progress import TaskID

    from runner.results import Outcome, Result
    from runner.scenario import Scenario
    from runner.verdict.finding import Status

STYLES: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "caret": "bold red",
    "PASSED": "green",
    "FAILED": "bold red",
    "FLAKY": "bold magenta",
    "INCONCLUSIVE": "bold yellow",
    "UNSUPPORTED": "yellow",
    "INVALID": "bold red",
}

#: verdict -> its word in the summary, in the order in which they are counted
WORDS: dict[Status, str] = {
    "PASSED": "passed",
    "FAILED": "failed",
    "FLAKY": "flaky",
    "INCONCLUSIVE": "inconclusive",
    "UNSUPPORTED": "unsupported",
    "INVALID": "invalid",
}


class TerminalReport:
    """Listens to the pipeline and prints. Also a context manager: it ends the progress bar."""

    def __init__(
        self, file: TextIO, *, verbose: bool = False, durations: int = 0, quiet: bool = False
    ) -> None:
        """Print to `file`; `durations` is how many of the slowest cases the summary shows.

        `quiet` leaves out what passed, as a terminal does.
        """
        self.console = Console(file=file, highlight=False, soft_wrap=True, markup=False)
        self.verbose = verbose
        self.durations = durations
        self.quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def begin(self, total: int) -> None:
        """Show the bar, on a terminal."""
        if not self.console.is_terminal or total == 0:
            return
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=total)

    def running(self, scenario: Scenario) -> None:
        """Name the case beside the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=scenario.case)

    def finish(self, result: Result) -> None:
        """Print the case if it is of interest, and move the bar."""
        quiet = (self.quiet or self._progress is not None) and not self.verbose
        if not (quiet and result.verdict.status == "PASSED"):
            self.print([headline(result), *details(result)])
        if self.verbose:
            self.print(more(result.verdict))
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def close(self) -> None:
        """End the progress bar, whatever happened."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines in their styles."""
        for line in lines:
            self.console.print(Text(line.printable, style=STYLES[line.style]))

    # ------------------------------------------------------------------ the summary

    def end(self, outcome: Outcome) -> None:
        """Print what the whole command came to."""
        self.close()
        self._silent(outcome)
        self._slowest(outcome)
        self.print(Line(f"note: {note}", "dim") for note in outcome.notes)
        self.print(summary_lines(outcome))

    def _silent(self, outcome: Outcome) -> None:
        """Let the programs stand out that are wrong and that the backend let pass."""
        found = [result for result in outcome.results if result.verdict.silently_wrong]
        if not found:
            return
        self.print([Line("wrong programs that the backend let finish:", "INCONCLUSIVE")])
        for result in found:
            predicted = result.verdict.predicted
            names = ", ".join(d.name for d in predicted.diagnoses) if predicted else ""
            self.print([Line(f"  {result.name}  {names}")])

    def _slowest(self, outcome: Outcome) -> None:
        if self.durations <= 0:
            return
        slowest = sorted(outcome.results, key=lambda result: -result.duration_s)
        self.print([Line(f"slowest {self.durations}:", "strong")])
        for result in slowest[: self.durations]:
            self.print([Line(f"  {milliseconds(result.duration_s):>8}  {result.case}")])


def summary_lines(outcome: Outcome) -> list[Line]:
    """Return the last line: how many of each verdict, and how long it took."""
    if not outcome.results and not outcome.interrupted:
        if outcome.exit_code == 0:
            return [Line(f"shard {outcome.shard} of {outcome.selected} cases is empty", "PASSED")]
        return [Line("nothing was selected", "INCONCLUSIVE")]
    parts = [f"{count} {WORDS[status]}" for status, count in outcome.counts.items() if count]
    if outcome.not_run:
        parts.append(f"{outcome.not_run} not run")
    text = ", ".join(parts) or "no result"
    if outcome.interrupted:
        text = f"interrupted: {text}"
    if outcome.shard is not None:
        text = f"shard {outcome.shard}: {text}"
    worst: Style = "PASSED" if outcome.exit_code == 0 else "FAILED"
    return [Line(f"{text} in {milliseconds(outcome.duration_s)}", worst)]
