"""A case of a watch, which may be abandoned: a file that changes is more urgent than a hang.

The case gets a second to finish, or none where its own file changed; then its workers are ended.

::

    save  ─┐            ┌─ save: noticed at once    ┌─ PATIENCE_S later: abandoned
    case A └──verdict   case B ───────────────────── x   what changed ──verdict   case B ───
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from runner.pipeline import execute, result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from runner.execution import Launcher
    from runner.results import Analysis, Result
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


class Cases:
    """Runs one case after the other, in a thread, so that changes are noticed meanwhile."""

    def __init__(
        self,
        launcher: Launcher | None,
        screen: Screen,
        meanwhile: Callable[[], Difference | None],
    ) -> None:
        """Run on `launcher`; None analyses only. `meanwhile` tells what has changed by now."""
        self._launcher = launcher
        self._screen = screen
        self._meanwhile = meanwhile
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="case")
        #: the files of which a case was abandoned when it last ran
        self.hung: set[Path] = set()

    def end(self) -> None:
        """End whatever runs."""
        if self._launcher is not None:
            self._launcher.abandon()
        self._thread.shutdown(cancel_futures=True)

    def run(self, path: Path, analysis: Analysis) -> tuple[Result | None, Difference | None]:
        """Run a case, and return what changed meanwhile; no result where it was abandoned."""
        if self._launcher is None or analysis.verdict.status != "PASSED":
            self.hung.discard(path)
            return result_of(analysis), self._meanwhile()
        running = self._thread.submit(execute, analysis, self._launcher)
        if _done(running, LONG_S):
            self.hung.discard(path)
            return running.result(), self._meanwhile()
        scenario = analysis.scenario
        name = f"{scenario.source.path}::{scenario.case}"
        with self._screen.busy(name):
            meanwhile = self._until_done(running, path)
        if _done(running, 0):
            self.hung.discard(path)
            return running.result(), meanwhile
        self._abandon(self._launcher, running)
        self.hung.add(path)
        self._screen.abandoned(name)
        return None, meanwhile

    def _until_done(self, running: Future[Result], path: Path) -> Difference | None:
        """Wait for a case of a file; once another file has changed, for a little longer."""
        while not _done(running, POLL_S):
            meanwhile = self._meanwhile()
            if meanwhile:
                _done(running, POLL_S if meanwhile.concerns(path) else PATIENCE_S)
                return meanwhile
        return self._meanwhile()

    def _abandon(self, launcher: Launcher, running: Future[Result]) -> None:
        """End a case by its workers, so that torch stays imported; else with all that runs."""
        deadline_s = time.monotonic() + STUBBORN_S
        while time.monotonic() < deadline_s:
            launcher.abandon(workers_only=True)
            if _done(running, POLL_S):
                return
        launcher.abandon()
        _done(running, None)


def _done(running: Future[Result], timeout_s: float | None) -> bool:
    """Return whether a case is judged, after waiting for it for some seconds."""
    return bool(wait([running], timeout_s).done)
