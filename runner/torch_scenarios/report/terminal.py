"""Results on a terminal, or as plain lines where there is none.

Only what went wrong is printed, and how many passed; a progress bar moves meanwhile on a terminal.
Colours follow NO_COLOR and FORCE_COLOR, as `rich` does, which a plain log does without. What moves
is for a terminal alone, whatever these say.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from torch_scenarios.display import brief
from torch_scenarios.errors import Problem
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.text import (
    Line,
    Style,
    count_warnings,
    details,
    headline,
    milliseconds,
    together,
    write_details,
    write_warning,
)
from torch_scenarios.verdict import Status

if TYPE_CHECKING:
    from rich.console import Console

    from torch_scenarios.report.progress import ProgressBar


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

#: seconds that a start of workers may take without a word
SLOW_START_S = 0.5
#: cases that did not pass which a command line names; more are taken by --last-failed
MOST_NAMED = 3
#: why a case counts as one that did not pass
_BAD: frozenset[Status] = frozenset({"FAILED", "FLAKY", "INCONCLUSIVE", "INVALID"})

#: variables by which `rich` may take for a terminal what is not one
_FORCING = ("FORCE_COLOR", "TTY_COMPATIBLE")


class TerminalReport:
    """Listens to the pipeline and prints. Also a context manager: it ends the progress bar.

    What passed is a count, what did not is shown in full: at night one reads the end of a log, and
    there is the summary.
    """

    def __init__(
        self,
        file: TextIO,
        *,
        verbose: bool = False,
        durations: int = 0,
        brief: bool = False,
        again: str = "",
        paths: Sequence[str] = (),
        launches: int = 0,
        folds: bool = False,
    ) -> None:
        """Print to `file`; `durations` is how many of the slowest cases the summary shows.

        Cases that passed are named where it is `verbose`. `brief` leaves out all but the summary.
        `again` is the command that the summary names for what did not pass, with its `paths` where
        they are many. `launches` is how many cases run at a time, each on a launch that imports
        torch first; 0 where none runs. `folds`: cases of one file of which the same is wrong are
        shown once, when the file's last is done.
        """
        self.brief = brief
        self.again = again
        self.paths = paths
        self.launches = launches
        self.file = file
        self.verbose = verbose
        self.durations = durations
        self.names_passed = verbose
        self.folds = folds
        #: cases that did not pass, of one file, by their verdict and what is wrong with them where
        self._alike: dict[Hashable, list[Result]] = {}
        self._warnings: list[Line] = []
        self._bar: ProgressBar | None = None
        self._answered = False
        #: the cases that began and are not reported yet, and how many are reported
        self._begun: deque[str] = deque()
        self._reported = 0
        self._at_once = max(1, launches)
        self._warned: set[Problem] = set()
        self._plain = not file.isatty() and not any(os.environ.get(name) for name in _FORCING)

    @cached_property
    def console(self) -> Console:
        """What knows of colours and widths; a plain log does not ask."""
        from rich.console import Console

        return Console(file=self.file, highlight=False, soft_wrap=True, markup=False)

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it while it moves."""
        return self.file.isatty()

    @property
    def _columns(self) -> int | None:
        """How wide a table may be: as the terminal, or as COLUMNS says; None in a plain log."""
        stated = os.environ.get("COLUMNS", "")
        if stated.isdecimal() and int(stated) > 0:
            return int(stated)
        return self.console.width if self.is_terminal else None

    def begin(self, total: int) -> None:
        """Show the bar, on a terminal."""
        if total == 0 or not self.is_terminal:
            return
        from torch_scenarios.report.progress import ProgressBar

        self._bar = ProgressBar(self.console, total)
        if self.launches:
            self._bar.name("torch is imported")

    def start(self, case: str) -> None:
        """Name the case beside the bar: of several, the one that the next report waits for."""
        if self._bar is None:
            return
        self._begun.append(case)
        self._name()
        # that a case begins on a launch says that the one before it there is done
        self._bar.reach(max(self._reported, self._reported + len(self._begun) - self._at_once))

    def _name(self) -> None:
        if self._bar is None or not self._begun:
            return
        words = self._begun[0]
        others = min(self._at_once, len(self._begun)) - 1
        words += f" and {others} more" if others else ""
        first = self.launches and not self._answered
        self._bar.name(f"{words} (torch is imported)" if first else words)

    def finish(self, result: Result) -> None:
        """Print the case if it is of interest, and move the bar."""
        if self._alike and result.file != next(iter(self._alike.values()))[0].file:
            self._unfold()
        warnings = self._find_new_warnings(result.verdict.warnings)
        if self.verbose and result.ready_s >= SLOW_START_S:
            self._tell_start(milliseconds(result.ready_s))
        if self.brief:
            pass
        elif self._folds(result):
            self._hold(result, warnings)
        elif warnings or self.names_passed or result.verdict.status != "PASSED":
            self.print([headline(result), *warnings, *details(result, self._columns)])
        if self.verbose:
            self.print(write_details(result.verdict))
        self._answered = self._answered or result.verdict.observed is not None
        self._reported += 1
        if self._begun:
            self._begun.popleft()
        if self._bar is not None:
            self._bar.reach(self._reported + max(0, len(self._begun) - self._at_once))
            self._name()

    def _folds(self, result: Result) -> bool:
        """Whether a case may be shown together with others of its file; its lines are not yet."""
        may = self.folds and result.verdict.status in _BAD
        return may and result.of_a_case and result.text is None

    def _tell_start(self, took: str) -> None:
        """Say how long a start of workers took; of launches side by side, the first alone."""
        if self.launches < 2:
            text = f"workers ready in {took}"
        elif not self._answered:
            text = f"{self.launches} launches, the first with its workers ready in {took}"
        else:
            return
        self.print([Line(text, "dim")])

    def _hold(self, result: Result, warnings: list[Line]) -> None:
        """Keep a case for the end of its file, with those of which the same is to be said."""
        self._warnings += warnings
        self._alike.setdefault(_fault_of(result), []).append(result)

    def _unfold(self) -> None:
        """Print the cases that are kept: those of which the same is to be said together."""
        for results in self._alike.values():
            names = together(results) if len(results) > 1 else [headline(results[0])]
            lines = details(results[0], self._columns)
            if any(details(other, self._columns) != lines for other in results[1:]):
                shown = results[0].case.removeprefix(results[0].case.partition("[")[0])
                text = f"  shown is {shown}; ranks or numbers of the others differ, -v shows them"
                names.append(Line(text, "dim"))
            self.print([*names, *self._warnings, *lines])
            self._warnings.clear()
        self._alike.clear()

    def _find_new_warnings(self, warnings: tuple[Problem, ...]) -> list[Line]:
        """Return the lines of the warnings that no case before had: cases of a file share them."""
        new = [each for each in warnings if each not in self._warned]
        self._warned.update(new)
        return [line for each in new for line in write_warning(each, self._columns)]

    def close(self) -> None:
        """End the progress bar, whatever happened."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines in their styles."""
        if self._plain:
            self.file.writelines(f"{line.printable.expandtabs()}\n" for line in lines)
            self.file.flush()
            return
        from rich.text import Text

        for line in lines:
            self.console.print(Text(line.printable, style=STYLES[line.style]))

    def end(self, outcome: Outcome) -> None:
        """Print what the whole command came to."""
        self._unfold()
        self.close()
        self.print(self._find_new_warnings(outcome.warnings))
        self._tell_silent(outcome)
        self._slowest(outcome)
        self._list_failures(outcome)
        self._fixable(outcome)
        self.print(Line(f"note: {note}", "dim") for note in outcome.notes)
        self.print(summary_lines(outcome))

    def _tell_silent(self, outcome: Outcome) -> None:
        """Let the programs stand out that are wrong and that the backend let pass."""
        found = [result for result in outcome.results if result.verdict.silently_wrong]
        if not found:
            return
        self.print([Line("wrong programs that the backend let finish:", "INCONCLUSIVE")])
        for result in found:
            predicted = result.verdict.predicted
            names = ", ".join(d.name for d in predicted.diagnoses) if predicted else ""
            self.print([Line(f"  {result.name}  {names}")])

    def _list_failures(self, outcome: Outcome) -> None:
        """List what did not pass, a line each, with the command that runs just these.

        Where no case is shown, what did not pass is named in any event.
        """
        bad = [result for result in outcome.results if result.verdict.status in _BAD]
        alone = len(outcome.results) == 1
        if not bad or (not self.brief and (alone or not self.again)):
            return
        self.print([Line("what did not pass:", "strong")])
        for result in bad:
            verdict = result.verdict
            kinds = [*(each.kind for each in verdict.findings), *(p.code for p in verdict.problems)]
            why = ", ".join(dict.fromkeys(kinds)) or brief(verdict.reason or "")
            self.print([Line(f"  {verdict.status:<12} {result.name}  {why}", verdict.status)])
        if alone or not self.again:
            return
        # of a file without a matrix there is one case
        names = [each.name if "[" in each.case else each.file for each in bad]
        if len(names) > MOST_NAMED:
            names = ["--last-failed", *self.paths]
        which = " ".join(map(shlex.quote, names[: MOST_NAMED + 1]))
        which += ", with the same paths" if len(names) > MOST_NAMED + 1 else ""
        self.print([Line(f"these alone: scenario {self.again} {which}", "dim")])

    def _fixable(self, outcome: Outcome) -> None:
        """Say how many edits `--fix` makes, and of which paths."""
        verdicts = [result.verdict for result in outcome.results if result.verdict.status in _BAD]
        repairs = [each.repair for verdict in verdicts for each in verdict.problems]
        repairs += [each.repair for verdict in verdicts for each in verdict.findings]
        found = {(each.source.path, each.edits) for each in repairs if each and each.sure}
        files = sorted({path for path, _ in found if not path.startswith("<")})
        if not files or not self.again:
            return
        which = " ".join(map(shlex.quote, files if len(files) <= MOST_NAMED else self.paths))
        what = "this edit" if len(found) == 1 else f"{len(found)} edits"
        self.print([Line(f"`scenario check --fix {which}` makes {what}", "dim")])

    def _slowest(self, outcome: Outcome) -> None:
        if self.durations <= 0:
            return
        slowest = sorted(outcome.results, key=lambda result: -result.duration_s)
        self.print([Line(f"slowest {self.durations}:", "strong")])
        for result in slowest[: self.durations]:
            self.print([Line(f"  {milliseconds(result.duration_s):>8}  {result.name}")])


def _fault_of(result: Result) -> Hashable:
    """Return what cases have in common of which the same is wrong in the same place."""
    verdict = result.verdict
    findings = tuple((each.kind, each.witness, each.mark, each.name) for each in verdict.findings)
    if result.text is not None:  # read back from a file
        return verdict.status, result.text
    return verdict.status, verdict.reason, verdict.problems, findings


def summary_lines(outcome: Outcome) -> list[Line]:
    """Return the last line: how many of each verdict, and how long it took."""
    if not outcome.results and not outcome.interrupted:
        if outcome.exit_code == 0:
            return [Line(f"shard {outcome.shard} of {outcome.selected} cases is empty", "PASSED")]
        return [Line("nothing was selected", "INCONCLUSIVE")]
    parts = [f"{count} {WORDS[status]}" for status, count in outcome.counts.items() if count]
    if outcome.not_run:
        parts.append(f"{outcome.not_run} not run")
    if outcome.all_warnings:
        parts.append(count_warnings(len(outcome.all_warnings)))
    text = ", ".join(parts) or "no result"
    if outcome.interrupted:
        text = f"interrupted: {text}"
    if outcome.shard is not None:
        text = f"shard {outcome.shard}: {text}"
    worst: Style = "PASSED" if outcome.exit_code == 0 else "FAILED"
    return [Line(f"{text} in {milliseconds(outcome.duration_s)}", worst)]
