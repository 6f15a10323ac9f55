"""The launch that a session's scenarios share: opened at the first, ended with the session."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from runner.execution.launcher import Launcher
from runner.pipeline import TRIES, execute, result_of
from runner.plugin.options import launch_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.execution.options import LaunchOptions
    from runner.plugin.items import ScenarioItem
    from runner.results import Analysis, Result

#: seconds for which scenarios are analysed ahead, while the workers' process imports torch
AHEAD_S = 2.0


def warm_of(config: pytest.Config) -> Warm:
    """Return the session's launch; it ends when the session does, however that comes about."""
    warm = config.stash.get(_KEY, None)
    if warm is None:
        warm = config.stash[_KEY] = Warm(launch_options(config))
        config.add_cleanup(warm.close)
    return warm


class Warm:
    """One launcher for a whole session. Under pytest-xdist each worker process has its own."""

    def __init__(self, options: LaunchOptions) -> None:
        """Start nothing yet."""
        self._options = options
        self._launcher: Launcher | None = None
        self._warmed = False
        #: why the last scenarios never started; None for one that did
        self._reasons: deque[str | None] = deque(maxlen=TRIES)

    def begin(self, ahead: Iterable[ScenarioItem]) -> None:
        """Start the process that imports torch, once; analyse further items until it is there.

        One launch is to hold all of these items' ranks.
        """
        launcher = self._open()
        if self._warmed:
            return
        self._warmed = True
        items = list(ahead)
        launcher.reserve(max((item.scenario.world_size for item in items), default=1))
        deadline_s = time.monotonic() + AHEAD_S
        for item in items:
            item.analyse()
            if time.monotonic() > deadline_s:
                return

    def run(self, analysis: Analysis) -> Result:
        """Execute an analysed case.

        Three scenarios that could not start for one reason are enough: a session of hundreds need
        not try the rest.
        """
        if analysis.verdict.status != "PASSED":
            return result_of(analysis)
        if len(self._reasons) == TRIES and len(set(self._reasons)) == 1 and self._reasons[0]:
            verdict = replace(analysis.verdict, status="INCONCLUSIVE", reason=self._reasons[0])
            return replace(result_of(analysis), verdict=verdict)
        try:
            result = execute(analysis, self._open())
        except BaseException:
            # an interrupt or a time limit leaves an answer on its way that nobody waits for
            self.close()
            raise
        never_ran = result.verdict.status == "INCONCLUSIVE" and result.verdict.observed is None
        self._reasons.append(result.verdict.reason if never_ran else None)
        return result

    def _open(self) -> Launcher:
        if self._launcher is None:
            self._launcher = Launcher(self._options).__enter__()
        return self._launcher

    def close(self) -> None:
        """End every process of the launch at once."""
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.__exit__(None, None, None)


_KEY = pytest.StashKey[Warm]()
