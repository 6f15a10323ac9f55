"""The loop of a watch: look, run what changed, wait.

A change while a case runs: the case gets a second to finish, or none where it is the one that
changed; then its workers are ended, and what changed runs first. What was abandoned comes last, and
whatever was left undone is done after, so that no change is lost and no hang holds anything up.

::

    save  ─┐            ┌─ save: noticed at once    ┌─ PATIENCE_S later: abandoned
    case A └──verdict   case B ───────────────────── x   what changed ──verdict   case B ───
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.pipeline import analyse, execute, load_all, result_of
from runner.problems import ScenarioError
from runner.results import Loaded, Outcome, Result
from runner.verdict import Verdict
from runner.watching.changes import Changes
from runner.watching.files import Files, Look

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from runner.execution import Launcher
    from runner.results import Analysis, Report, Selection
    from runner.watching.files import Difference
    from runner.watching.screen import Screen

#: seconds that a running case gets once another file has changed
PATIENCE_S = 1.0
#: seconds that workers may take to be ended, or torch to be imported, before all is ended
STUBBORN_S = 10.0
#: seconds after which a person wants to know what takes so long
LONG_S = 0.5
#: seconds between two looks whether a long case is done, or a file has changed
POLL_S = 0.05
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
        self._launcher = launcher
        self._remember = remember
        self._memory = remember()
        self._stop_at_failure = stop_at_failure
        self._files = Files(selection.paths, selection.limits)
        self._changes = Changes()
        self._look = Look(read={}, named={})
        self._look_s = 0.0
        #: what is to be run: the files, in this order
        self._todo: dict[Path, None] = {}
        #: those that were abandoned when they last ran, which come last
        self._hung: set[Path] = set()
        self._results: dict[Path, list[Result]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="case")

    def run(self) -> None:
        """Watch until KeyboardInterrupt, which is passed on once nothing runs any more."""
        with ExitStack() as stack:
            stack.callback(self._end)
            stack.enter_context(self._changes)
            self._notice()
            meanwhile = self._round(None)
            while meanwhile:
                meanwhile = self._round(meanwhile)
            self._screen.waiting(len(self._look.read), self._changes.trouble)
            while True:
                meanwhile = self._round(meanwhile or self._wait())

    def _end(self) -> None:
        if self._launcher is not None:
            self._launcher.abandon()
        self._thread.shutdown(cancel_futures=True)

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
        self._todo = dict.fromkeys(sorted(todo, key=self._hung.__contains__))
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
            result, meanwhile = self._case(path, analyse(scenario, self._selection.limits))
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

    def _case(self, path: Path, analysis: Analysis) -> tuple[Result | None, Difference | None]:
        """Run a case, and return what changed meanwhile; no result where it was abandoned."""
        if self._launcher is None or analysis.verdict.status != "PASSED":
            self._hung.discard(path)
            return result_of(analysis), self._meanwhile()
        running = self._thread.submit(execute, analysis, self._launcher)
        if _done(running, LONG_S):
            self._hung.discard(path)
            return running.result(), self._meanwhile()
        scenario = analysis.scenario
        name = f"{scenario.source.path}::{scenario.case}"
        with self._screen.busy(name):
            meanwhile = self._until_done(running, path)
        if _done(running, 0):
            self._hung.discard(path)
            return running.result(), meanwhile
        self._abandon(running)
        self._hung.add(path)
        self._screen.abandoned(name)
        return None, meanwhile

    def _abandon(self, running: Future[Result]) -> None:
        """End a case by its workers, so that torch stays imported; else with all that runs."""
        assert self._launcher is not None  # noqa: S101 -- it runs on it
        deadline_s = time.monotonic() + STUBBORN_S
        while time.monotonic() < deadline_s:
            self._launcher.abandon(workers_only=True)
            if _done(running, POLL_S):
                return
        self._launcher.abandon()
        _done(running, None)

    def _until_done(self, running: Future[Result], path: Path) -> Difference | None:
        """Wait for a case of a file; once another file has changed, for a little longer."""
        while not _done(running, POLL_S):
            meanwhile = self._meanwhile()
            if meanwhile:
                _done(running, POLL_S if meanwhile.concerns(path) else PATIENCE_S)
                return meanwhile
        return self._meanwhile()


def _done(running: Future[Result], timeout_s: float | None) -> bool:
    """Return whether a case is judged, after waiting for it for some seconds."""
    return bool(wait([running], timeout_s).done)


def _status(result: Result) -> str:
    return result.verdict.status
