"""Reports behind one listener: their targets, their thread, the pictures they share."""

from __future__ import annotations

import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from msgspec import Struct

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.files import PendingFile
from torch_scenarios.report.formats import Format
from torch_scenarios.timeline import timeline as make

if TYPE_CHECKING:
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Outcome, Report, Result
    from torch_scenarios.timeline.model import Timeline


# Where a report goes: a file that appears whole or not at all, a stream, standard output.
#
# A target is opened before anything runs, so that a path that cannot be written is reported at
# once. A regular file is written without a name (:mod:`torch_scenarios.files`) and gets it at the
# end; until then, and for ever where the run fails, what stood there before stays.

STANDARD_OUTPUT = "-"
#: names of files that are open already; /dev/stderr may lead to a file that others write to
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class Target:
    """One open file that a report writes to. Raises OSError where `path` cannot be written.

    A new file takes the place of the old one when it is whole: a run that is killed leaves the last
    report, and not half of this one. A pipe, or a report that streams, is written as it comes.
    """

    def __init__(self, path: str, *, streams: bool = False) -> None:
        """Open it: a new file, or the one in place where it `streams` or is no regular file."""
        self.path = path
        self._final = Path(os.path.realpath(path))
        self._pending: PendingFile | None = None
        self._new = False
        self.file: TextIO
        self._special = _special(Path(path))
        if path == STANDARD_OUTPUT:
            self.file = sys.stdout
        elif self._special:
            self.file = Path(path).open("a", encoding="utf-8", newline="\n")  # noqa: SIM115 -- kept
        elif streams:
            self._new = not self._final.exists()
            # what stands there is cut off only once something is written
            self.file = self._final.open("a", encoding="utf-8", newline="\n")
        else:
            self._pending, self.file = _open_pending(self._final)

    @property
    def identity(self) -> str:
        """What two targets have in common where they would write to one place."""
        return STANDARD_OUTPUT if self.path == STANDARD_OUTPUT else str(self._final)

    def start(self) -> None:
        """Be empty: from now on it is written to. Raises OSError."""
        self._new = False
        if self.path != STANDARD_OUTPUT and not self._special:
            self.file.truncate(0)

    def keep(self) -> None:
        """Let what was written appear in its place. Raises OSError."""
        self.file.flush()
        if self.path == STANDARD_OUTPUT:
            return
        if self._pending is not None:
            self._pending.keep()
            self._pending = None
        self.file.close()

    def discard(self) -> None:
        """Leave nothing behind of what was not kept."""
        if self.path == STANDARD_OUTPUT:
            return
        with suppress(OSError):  # a full disk, told already
            self.file.close()
        if self._pending is not None:
            self._pending.discard()
            self._pending = None
        if self._new:
            self._final.unlink(missing_ok=True)


def _special(path: Path) -> bool:
    """Return whether a path is a pipe, a device or an open file, which no rename may replace."""
    if str(path).startswith(_OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _open_pending(path: Path) -> tuple[PendingFile | None, TextIO]:
    """Open a new file for `path`, or `path` itself in a folder that takes no new one."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    try:
        pending = PendingFile(path)
    except PermissionError:
        # a folder that takes no new file may still hold one that can be written
        if not path.exists():
            raise
        return None, path.open("r+", encoding="utf-8", newline="\n")
    return pending, os.fdopen(pending.descriptor, "w", encoding="utf-8", newline="\n")


# What is done beside the main thread: reports are written while the next case runs.
#
# The main thread mostly waits for workers then, so that what a report computes costs a run next to
# nothing. Things are done in the order in which they come; a few may wait, no more, so that no
# case's tensors stay for long.

#: what may wait; beyond that the main thread waits
MOST_WAITING = 4


class BackgroundThread:
    """A thread that does one thing after the other, begun with the first of them.

    What is done must not raise.

    A disk that is full of other work would hold the run up at each result. Here it holds up this
    thread alone, until too much waits.
    """

    def __init__(self) -> None:
        """Begin nothing yet."""
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def do(self, thing: Callable[[], None]) -> None:
        """Do a thing after all that came before it; returns at once unless too much waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="reports", daemon=True)
            self._thread.start()
        self._waiting.put(thing)

    def finish(self) -> None:
        """Return once all is done, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (thing := self._waiting.get()) is not None:
            thing()


# The timelines of the result at hand, made once for all reports that draw from them.
#
# Several reports of one run ask for the same two timelines one after the other. They are
# remembered until the next result comes, and no longer: nothing of a trace outlives its case.

#: a prediction and an observation
_MOST = 2

_made: list[tuple[Trace, Trace | None, Timeline]] = []


def timeline(scenario: Scenario, trace: Trace, predicted: Trace | None) -> Timeline:
    """Return what :func:`torch_scenarios.timeline.timeline` does."""
    for known, beside, picture in _made:
        if known is trace and beside is predicted:
            return picture
    picture = make(scenario, trace, predicted)
    _made.append((trace, predicted, picture))
    del _made[:-_MOST]
    return picture


def forget() -> None:
    """Forget the result at hand; the composite of all reports calls this after each."""
    _made.clear()


# Several reports of one run behind one listener, each to another target.
#
# A report that fails costs the run nothing and the other reports nothing: it is left out, its
# target is not touched, and that is reported at the end. Those that have a target are written
# beside the run (:mod:`torch_scenarios.report.output`); what people read is written at once.

#: a report with such a name would take the place of a scenario
_SCENARIOS = (".yaml", ".yml")


class _Entry(Struct, eq=False):
    """A report, where it goes (None: it has no target), and why it failed.

    `unread` is one whose reader has left: nothing more is written to it, and that is not a failure.
    """

    name: str
    report: Report
    target: Target | None = None
    failure: str | None = None
    unread: bool = False
    essential: bool = False


class Reports:
    """A :class:`torch_scenarios.pipeline.results.Report` of many. Leaving it cleans up.

        --junit a.xml --json b.json       one run, three reports: these two, and the terminal

    A report that fails is named at the end, and fails no other.
    """

    def __init__(
        self, terminal: Report | None = None, others: Mapping[str, Report] | None = None
    ) -> None:
        """Begin with reports that need no target, each with the name that messages give it.

        What goes wrong inside of the one for people ends the run; that its output is full or closed
        does not.
        """
        self._entries = [_Entry(name, report) for name, report in (others or {}).items()]
        if terminal is not None:
            self._entries.insert(0, _Entry("for people", terminal, essential=True))
        self._begun = False
        self._aside = BackgroundThread()
        self.traces = self.costs = False
        #: whether a report tells how a case ends that passes
        self.endings = False

    def open(self, wanted: Sequence[tuple[Format, str]]) -> Self:
        """Open each report's path. Raises ScenarioError, naming every path that cannot be used."""
        problems: list[Problem] = []
        taken: dict[str, str] = {}
        for kind, path in wanted:
            try:
                target = _target(kind, path, taken)
            except (OSError, ValueError) as error:
                problems.append(_word_failure(kind.option, path, error))
                continue
            taken[target.identity] = kind.option
            entry = _Entry(f"{kind.option} {path}", kind.make(target.file), target)
            self._entries.append(entry)
            self.endings = True
            self.traces = self.traces or kind.traces
            self.costs = self.costs or kind.costs
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

    def begin(self, total: int) -> None:
        """Tell all."""
        self._begun = True
        for entry in self._entries:
            _tell_one(entry, partial(_begin, entry.target, total))

    def start(self, case: str) -> None:
        """Tell all."""
        self._tell_beside(lambda report: report.start(case))

    def finish(self, result: Result) -> None:
        """Tell all."""
        self._tell_beside(lambda report: report.finish(result), forget)

    def end(self, outcome: Outcome) -> None:
        """Tell all, and let every report appear in its place."""
        if not self._begun:  # interrupted before anything was read
            self.begin(len(outcome.results))
        self._aside.finish()
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
            self._aside.finish()
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
    return f"{type(error).__name__}: {error}; this is a bug of torch-scenarios: report it"


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


def _word_failure(option: str, path: str, error: OSError | ValueError) -> Problem:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Problem(
        code="report_unwritable",
        message=f"the report {option} {path} cannot be written: {reason or error}",
    )
