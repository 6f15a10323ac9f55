"""The loop of a watch: look, run what changed, wait.

What changes while a case runs comes first, and may abandon it (:mod:`runner.watching.cases`). What
was abandoned comes last, and whatever was left undone is done after, so that no change is lost and
no hang holds anything up.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.pipeline import analyse, load_all
from runner.problems import ScenarioError
from runner.results import Loaded, Outcome, Result
from runner.verdict import Verdict
from runner.watching.cases import Cases
from runner.watching.changes import Changes
from runner.watching.files import Files, Look

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runner.execution import Launcher
    from runner.results import Report, Selection
    from runner.watching.files import Difference
    from runner.watching.screen import Screen

#: seconds between two looks at what no event may have told
LOOK_S = 2.0
#: a look may take this part of the time at most
LOOK_SHARE = 0.05


class Watch:
    """Runs what a selection means, and again what changes of it, until it is interrupted."""

    def __init__(
        self,
        selection: Selection,
        screen: Screen,
        launcher: Launcher | None,
        *,
        remember: Callable[[], Report],
        stop_at_failure: bool = False,
    ) -> None:
        """Run on `launcher`, which was entered; None analyses only.

        `remember` makes for each round what hears of it, as of a run.
        """
        self._selection = selection
        self._screen = screen
        self._remember = remember
        self._memory = remember()
        self._stop_at_failure = stop_at_failure
        self._files = Files(selection.paths, selection.limits)
        self._changes = Changes()
        self._look = Look(read={}, named={})
        self._look_s = 0.0
        #: what is to be run: the files, in this order
        self._todo: dict[Path, None] = {}
        self._results: dict[Path, list[Result]] = {}
        self._cases = Cases(launcher, screen, self._meanwhile)

    def run(self) -> None:
        """Watch until KeyboardInterrupt, which is passed on once nothing runs any more."""
        with ExitStack() as stack:
            stack.callback(self._cases.end)
            stack.enter_context(self._changes)
            self._notice()
            meanwhile = self._round(None)
            while meanwhile:
                meanwhile = self._round(meanwhile)
            self._screen.waiting(len(self._look.read), self._changes.trouble)
            while True:
                meanwhile = self._round(meanwhile or self._wait())

    # ------------------------------------------------------------------ what changed

    def _wait(self) -> Difference:
        """Wait for a change that matters, and return it."""
        while True:
            self._changes.wait(max(LOOK_S, self._look_s / LOOK_SHARE))
            difference = self._notice()
            if difference:
                return difference

    def _notice(self) -> Difference:
        """Look at the disk; put what changed before all else that is to be run."""
        began = time.monotonic()
        look = self._files.look()
        self._changes.follow(*self._files.folders(look))
        difference = look.since(self._look)
        self._look = look
        for path in difference.gone:
            self._results.pop(path, None)
            self._todo.pop(path, None)
        todo = dict.fromkeys((*difference.affected, *self._todo))
        self._todo = dict.fromkeys(sorted(todo, key=self._cases.hung.__contains__))
        self._look_s = time.monotonic() - began
        return difference

    def _meanwhile(self) -> Difference | None:
        """Return what changed while something ran, if anything did; takes no time otherwise."""
        return (self._notice() or None) if self._changes.wait(0) else None

    # ------------------------------------------------------------------ what is run

    def _round(self, difference: Difference | None) -> Difference | None:
        """Run what is to be run; return what changed meanwhile, if something did."""
        began = time.monotonic()
        judged: list[Result] = []
        self._screen.round(difference, len(self._todo))
        self._memory = self._remember()
        self._memory.begin(len(self._todo))
        meanwhile = self._run_all(judged)
        took_s = time.monotonic() - began
        if judged:
            outcome = Outcome(
                results=tuple(judged),
                interrupted=meanwhile is not None,
                duration_s=took_s,
                cases=len(judged),
                selected=len(judged),
            )
            self._memory.end(outcome)
        if meanwhile is None:
            everything = [result for results in self._results.values() for result in results]
            self._screen.summary(judged, everything, took_s)
        return meanwhile

    def _run_all(self, judged: list[Result]) -> Difference | None:
        """Run every file that is to be run, until something changes."""
        while self._todo:
            path = next(iter(self._todo))
            done: list[Result] = []
            whole, meanwhile = self._file(path, done)
            judged += done
            if path in self._look.read:
                self._results[path] = done
            if whole and not (meanwhile and meanwhile.concerns(path)):
                del self._todo[path]
            if meanwhile:
                return meanwhile
            if self._stop_at_failure and "FAILED" in map(_status, done):
                self._todo.clear()
        return None

    def _file(self, path: Path, done: list[Result]) -> tuple[bool, Difference | None]:
        """Run the cases of a file: whether all of them are judged, and what changed meanwhile."""
        loaded = self._load(path)
        for invalid in loaded.invalid:
            self._keep(invalid, done)
        last = len(loaded.scenarios) - 1
        for at, scenario in enumerate(loaded.scenarios):
            analysis = analyse(scenario, self._selection.limits)
            result, meanwhile = self._cases.run(path, analysis)
            if result is not None:
                self._keep(result, done)
            if meanwhile:
                return result is not None and at == last, meanwhile
        return True, None

    def _load(self, path: Path) -> Loaded:
        selection = replace(self._selection, paths=self._look.named[path])
        try:
            return load_all(selection)
        except ScenarioError as error:  # a case or a line that was named is not there any more
            name = selection.paths[0]
            verdict = Verdict(status="INVALID", problems=error.problems)
            return Loaded(scenarios=(), invalid=(Result(file=name, case=name, verdict=verdict),))

    def _keep(self, result: Result, done: list[Result]) -> None:
        """Show a result; of its traces nothing is kept."""
        self._screen.result(result)
        self._memory.finish(result)
        slim = replace(result, verdict=Verdict(status=result.verdict.status), scenario=None)
        done.append(slim)


def _status(result: Result) -> str:
    return result.verdict.status
