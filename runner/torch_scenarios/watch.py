"""`scenario run --watch`: run again what a save changes, in workers that stay warm."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from rich.rule import Rule
from watchfiles import DefaultFilter, watch

from torch_scenarios.errors import ScenarioError
from torch_scenarios.execution import Launcher
from torch_scenarios.files import SUFFIXES, discover, project_root, read_file
from torch_scenarios.limits import Limits
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import execute, result_of
from torch_scenarios.pipeline.history import FOLDER
from torch_scenarios.pipeline.results import (
    Analysis,
    LoadedFiles,
    Outcome,
    Report,
    Result,
    Selection,
)
from torch_scenarios.pipeline.selection import load_all, place_of
from torch_scenarios.report.terminal import WORDS, TerminalReport
from torch_scenarios.report.text import Line, details, headline, milliseconds, write_details
from torch_scenarios.source.tree import Mapping, Node, Scalar, key_text, read_tree
from torch_scenarios.source.tree import Sequence as TreeSequence
from torch_scenarios.verdict import Verdict

# -------------------------------------------------------------------------------------------------
# `scenario run --watch`: run again what a save changes, in workers that stay warm.
#
# `files` knows which scenarios there are and what each of them was read from; `changes` wakes the
# loop when something may have changed; `loop` runs what did; `screen` says so. Events only wake:
# what changed is always read from the disk, so that none can be lost.


# -------------------------------------------------------------------------------------------------
# What a watch says: a rule with the time and what changed, the verdicts, a line of counts.

#: names in one rule; the rest is counted
NAMED = 3
#: files of a round from which a terminal shows only what did not pass
MANY = 20


class Screen:
    """Prints through a terminal report: its console, its styles, its verbosity.

    A round of many files is quieter on a terminal than one of a few.
    """

    def __init__(self, report: TerminalReport) -> None:
        """Print where the report prints."""
        self._report = report
        self._quiet = False

    def round(self, difference: FileChanges | None, files: int) -> None:
        """Part a round from the one before: when it is, and what changed; None for the first."""
        self._quiet = files > MANY and self._report.is_terminal
        if difference is None:
            return
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        title = f"{now}  {_tell_changes(difference)}"
        self._report.console.print()
        self._report.console.print(Rule(title, align="left", style="dim"))

    def result(self, result: Result) -> None:
        """Print a verdict, whole."""
        if self._quiet and result.verdict.status == "PASSED":
            return
        lines = [headline(result), *details(result)]
        self._report.print(
            [*lines, *write_details(result.verdict)] if self._report.verbose else lines
        )

    def abandon(self, case: str) -> None:
        """Say that a case is not waited for, because a file changed."""
        self._report.print([Line(f"{'abandoned':<12} {case}: a file changed", "dim")])

    def summary(
        self, judged: Sequence[Result], everything: Sequence[Result], took_s: float
    ) -> None:
        """Print what the round came to, and what all files came to where that is more."""
        text = f"{_count_results(judged)} in {milliseconds(took_s)}" if judged else "nothing to run"
        if len(everything) > len(judged):
            text += f"; all {len(everything)}: {_count_results(everything)}"
        well = all(each.verdict.status in {"PASSED", "UNSUPPORTED"} for each in everything)
        self._report.print([Line(text, "PASSED" if well else "FAILED")])

    def wait(self, files: int, trouble: str | None) -> None:
        """Say, once, what a person can do now."""
        noun = "file" if files == 1 else "files"
        self._report.print(
            [Line(f"watching {files} {noun}: a save runs what it changes, Ctrl-C ends", "dim")]
        )
        if trouble:
            text = f"changes are looked for every few seconds, the system cannot tell: {trouble}"
            self._report.print([Line(text, "INCONCLUSIVE")])

    def stop(self) -> None:
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


def _tell_changes(difference: FileChanges) -> str:
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


def _count_results(results: Sequence[Result]) -> str:
    statuses = [result.verdict.status for result in results]
    parts = [f"{statuses.count(s)} {word}" for s, word in WORDS.items() if s in statuses]
    return ", ".join(parts) or "no case"


# -------------------------------------------------------------------------------------------------
# The scenarios that a command line means at this moment, and what each was read from.
#
# A look at the disk gives for each file its stamp and those of the files that it uses, directly or
# through others. Two looks that differ tell what changed: by a save in place, by an editor that
# renames a new file over the old one, by a file that appears or goes.

#: time of the last change in ns, size in bytes, inode
Stamp: TypeAlias = tuple[int, int, int]

#: ns after a change in which another one may get the same time: a kernel's clock is coarse
TICK_NS = 10_000_000
#: looks at a file that never rests
RESTLESS = 10


class DiskState(Struct, frozen=True, kw_only=True):
    """What stood on the disk at one moment.

    `read` has for each scenario file, by its resolved path, the stamps of itself and of what it
    uses, None for a file that is not there; `named` has the words of the command line that mean it.
    """

    read: dict[Path, dict[Path, Stamp | None]]
    named: dict[Path, tuple[str, ...]]

    def since(self, before: DiskState) -> FileChanges:
        """Return what changed between an earlier look and this one."""
        changed: set[Path] = set()
        affected: list[Path] = []
        for path, stamps in self.read.items():
            old = before.read.get(path)
            if old == stamps and self.named[path] == before.named.get(path):
                continue
            affected.append(path)
            if old is not None:
                changed |= {each for each in {*stamps, *old} if stamps.get(each) != old.get(each)}
        return FileChanges(
            affected=tuple(affected),
            changed=tuple(sorted(changed)),
            appeared=tuple(path for path in self.read if path not in before.read),
            gone=tuple(path for path in before.read if path not in self.read),
        )


class FileChanges(Struct, frozen=True, kw_only=True):
    """What changed: `affected` are the scenario files to be run again.

    >>> bool(FileChanges(affected=(), changed=(), appeared=(), gone=()))
    False

    A library that changed affects each file that uses it, also by way of another.
    """

    affected: tuple[Path, ...]
    changed: tuple[Path, ...]
    appeared: tuple[Path, ...]
    gone: tuple[Path, ...]

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.affected or self.gone)

    def concerns(self, path: Path) -> bool:
        """Return whether a scenario file changed, by itself or by what it uses, or is gone."""
        return path in self.affected or path in self.gone


class Files:
    """Looks at the disk; remembers only what each file uses, by its stamp.

    Events of the system say that something happened, and may be lost or doubled. So they only wake;
    what changed is found by comparing two looks (decision 21).
    """

    def __init__(self, paths: Iterable[str], limits: Limits) -> None:
        """Mean what the paths of a command line mean."""
        self._paths = tuple(paths)
        self._limits = limits
        self._uses: dict[Path, tuple[Stamp | None, frozenset[Path]]] = {}

    def look(self) -> DiskState:
        """Return what stands on the disk now; a named path that is not there means nothing."""
        named: dict[Path, tuple[str, ...]] = {}
        for text in self._paths:
            place = place_of(text)
            try:
                found = discover([place.path], self._limits)
            except ScenarioError:
                continue
            for path in found:
                meant = str(path) if place.whole else text
                resolved = path.resolve()
                named[resolved] = (*named.get(resolved, ()), meant)
        return DiskState(read={path: self._stamps(path) for path in named}, named=named)

    def folders(self, look: DiskState) -> tuple[frozenset[Path], frozenset[Path]]:
        """Return the folders to follow: some with all that is below, some by themselves.

        A file is followed by its folder, because a save may put another file in its place; and so
        is a named folder, which may go and come back.
        """
        deep = {path.resolve() for path in map(Path, self._paths) if path.is_dir()}
        flat = {Path(place_of(text).path).resolve().parent for text in self._paths}
        flat |= {used.parent for stamps in look.read.values() for used in stamps}
        flat = {path for path in flat if not any(path.is_relative_to(root) for root in deep)}
        return frozenset(deep), frozenset(path for path in flat if path.is_dir())

    def _stamps(self, path: Path) -> dict[Path, Stamp | None]:
        """Return the stamps of a file and of all that it uses."""
        found: dict[Path, Stamp | None] = {}
        waiting = [path]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found[each] = stamp_of(each)
                waiting += self._used_by(each, found[each])
        return found

    def _used_by(self, path: Path, stamp: Stamp | None) -> frozenset[Path]:
        """Return what a file itself uses; what it used last while it cannot be read."""
        known = self._uses.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            tree = read_tree(str(path), read_file(path, self._limits), limits=self._limits)
        except ScenarioError:
            found = known[1] if known is not None else frozenset()
        else:
            found = frozenset(_find_permitted(used_in(tree), path))
        self._uses[path] = (stamp, found)
        return found


def stamp_of(path: Path) -> Stamp | None:
    """Return a file's stamp; None where it is not there.

    A file that changed this very moment is looked at a moment later: its next change could have
    the same stamp.
    """
    for _ in range(RESTLESS):
        try:
            status = path.stat()
        except OSError:
            return None
        if not 0 <= time.time_ns() - status.st_mtime_ns < TICK_NS:
            break
        time.sleep(TICK_NS / 1e9)
    return status.st_mtime_ns, status.st_size, status.st_ino


def used_in(tree: Node) -> Iterator[str]:
    """Yield the files that a tree names in its `use`, wherever it stands."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, TreeSequence):
            waiting += node.items
        elif isinstance(node, Mapping):
            for key, value in node.entries:
                waiting.append(value)
                file = value.get("file") if isinstance(value, Mapping) else value
                if key_text(key) == "use" and isinstance(file, Scalar):
                    yield file.text


def _find_permitted(named: Iterable[str], path: Path) -> Iterator[Path]:
    """Yield the files that `use` may read from here: nothing outside the project is looked at."""
    root = project_root(path)
    for text in named:
        if "\0" in text or os.path.isabs(text):  # noqa: PTH117 -- no path yet
            continue
        used = Path(os.path.realpath(path.parent / text))
        if used.suffix in SUFFIXES and used.is_relative_to(root):
            yield used


# -------------------------------------------------------------------------------------------------
# Wakes its listener when something may have changed below some folders.
#
# watchfiles reports changes in its threads, also while no call waits; nothing is queued,
# since the listener looks at the disk. Where the system cannot tell (too many folders, a file
# system over a network), the wait is short instead.

#: ms without a further change after which a save counts as complete
QUIET_MS = 30
#: ms after which changes that never pause are reported
LONGEST_MS = 400

#: what editors and other tools write, and we ourselves
_FILTER = DefaultFilter(ignore_dirs=(*DefaultFilter.ignore_dirs, FOLDER))


class Changes:
    """Follows folders. Use as a context manager.

    A file that an editor writes by renaming is a new file each time: a folder tells of it, and the
    file that was watched would not.
    """

    def __init__(self) -> None:
        """Follow nothing yet."""
        self._event = threading.Event()
        self._followed: tuple[frozenset[Path], frozenset[Path]] = (frozenset(), frozenset())
        self._stop = threading.Event()
        #: why the system cannot tell of changes, if so
        self.trouble: str | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Follow nothing any more."""
        self._stop.set()

    def follow(self, deep: frozenset[Path], flat: frozenset[Path]) -> None:
        """Follow some folders with all that is below, and some by themselves, from now on.

        A change that happens meanwhile may go unreported: the caller looks afterwards.
        """
        if (deep, flat) == self._followed:
            return
        before, self._stop = self._stop, threading.Event()
        self._followed = (deep, flat)
        for folders, recursive in ((deep, True), (flat, False)):
            if folders:
                arguments = (sorted(folders), recursive, self._stop)
                threading.Thread(target=self._tell, args=arguments, daemon=True).start()
        before.set()
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something may have changed since the last call; False once time is over."""
        changed = self._event.wait(timeout_s)
        self._event.clear()
        return changed

    def _tell(self, folders: Iterable[Path], recursive: bool, stop: threading.Event) -> None:  # noqa: FBT001 -- of a thread
        try:
            for _ in watch(
                *folders,
                recursive=recursive,
                stop_event=stop,
                watch_filter=_FILTER,
                step=QUIET_MS,
                debounce=LONGEST_MS,
                ignore_permission_denied=True,
            ):
                self._event.set()
        except (OSError, RuntimeError) as error:
            self.trouble = str(error)
            self._event.set()


# -------------------------------------------------------------------------------------------------
# A case of a watch, which may be abandoned: a file that changes is more urgent than a hang.
#
# The case gets a second to finish, or none where its own file changed; then its workers are ended.
#
# ::
#
#     save  ─┐            ┌─ save: noticed at once    ┌─ PATIENCE_S later: abandoned
#     case A └──verdict   case B ───────────────────── x   what changed ──verdict   case B ───

#: seconds that a running case gets once another file has changed
PATIENCE_S = 1.0
#: seconds that workers may take to be ended, or torch to be imported, before all is ended
STUBBORN_S = 10.0
#: seconds after which a person wants to know what takes so long
LONG_S = 0.5
#: seconds between two looks whether a long case is done, or a file has changed
POLL_S = 0.05


class Cases:
    """Runs one case after the other, in a thread, so that changes are noticed meanwhile.

    A change of the file that runs ends it: its result would be of a text that is no longer there.
    """

    def __init__(
        self,
        launcher: Launcher | None,
        screen: Screen,
        meanwhile: Callable[[], FileChanges | None],
    ) -> None:
        """Run on `launcher`; None analyses only. `meanwhile` tells what has changed by now."""
        self._launcher = launcher
        self._screen = screen
        self._find_change = meanwhile
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="case")
        #: the files of which a case was abandoned when it last ran
        self.hung: set[Path] = set()

    def end(self) -> None:
        """End whatever runs."""
        if self._launcher is not None:
            self._launcher.abandon()
        self._thread.shutdown(cancel_futures=True)

    def run(self, path: Path, analysis: Analysis) -> tuple[Result | None, FileChanges | None]:
        """Run a case, and return what changed meanwhile; no result where it was abandoned."""
        if self._launcher is None or analysis.verdict.status != "PASSED":
            self.hung.discard(path)
            return result_of(analysis), self._find_change()
        running = self._thread.submit(execute, analysis, self._launcher)
        if _wait_for(running, LONG_S):
            self.hung.discard(path)
            return running.result(), self._find_change()
        scenario = analysis.scenario
        name = f"{scenario.source.path}::{scenario.case}"
        with self._screen.busy(name):
            meanwhile = self._wait_for_case(running, path)
        if _wait_for(running, 0):
            self.hung.discard(path)
            return running.result(), meanwhile
        self._abandon(self._launcher, running)
        self.hung.add(path)
        self._screen.abandon(name)
        return None, meanwhile

    def _wait_for_case(self, running: Future[Result], path: Path) -> FileChanges | None:
        """Wait for a case of a file; once another file has changed, for a little longer."""
        while not _wait_for(running, POLL_S):
            meanwhile = self._find_change()
            if meanwhile:
                _wait_for(running, POLL_S if meanwhile.concerns(path) else PATIENCE_S)
                return meanwhile
        return self._find_change()

    def _abandon(self, launcher: Launcher, running: Future[Result]) -> None:
        """End a case by its workers, so that torch stays imported; else with all that runs."""
        deadline_s = time.monotonic() + STUBBORN_S
        while time.monotonic() < deadline_s:
            launcher.abandon(workers_only=True)
            if _wait_for(running, POLL_S):
                return
        launcher.abandon()
        _wait_for(running, None)


def _wait_for(running: Future[Result], timeout_s: float | None) -> bool:
    """Return whether a case is judged, after waiting for it for some seconds."""
    return bool(wait([running], timeout_s).done)


# -------------------------------------------------------------------------------------------------
# The loop of a watch: look, run what changed, wait.
#
# What changes while a case runs comes first, and may abandon it (:mod:`torch_scenarios.watch`).
# What was abandoned comes last, and whatever was left undone is done after, so that no change is
# lost and no hang holds anything up.

#: seconds between two looks at what no event may have told
LOOK_S = 2.0
#: a look may take this part of the time at most
LOOK_SHARE = 0.05


class Watch:
    """Runs what a selection means, and again what changes of it, until it is interrupted.

    save a.yaml      ->   a.yaml runs         the launch stays warm from round to round
    save ring.yaml   ->   all that use it run
    """

    def __init__(
        self,
        selection: Selection,
        screen: Screen,
        launcher: Launcher | None,
        *,
        remember: Callable[[], Report],
        analysed: Callable[[Scenario], Analysis],
        stop_at_failure: bool = False,
    ) -> None:
        """Run on `launcher`, which was entered; None analyses only.

        `remember` makes for each round what hears of it, as of a run; `analysed` proves a case.
        """
        self._selection = selection
        self._screen = screen
        self._remember = remember
        self._memory = remember()
        self._analysed = analysed
        self._stop_at_failure = stop_at_failure
        self._files = Files(selection.paths, selection.limits)
        self._changes = Changes()
        self._look = DiskState(read={}, named={})
        self._look_s = 0.0
        #: what is to be run: the files, in this order
        self._todo: dict[Path, None] = {}
        self._results: dict[Path, list[Result]] = {}
        self._cases = Cases(launcher, screen, self._find_change)

    def run(self) -> None:
        """Watch until KeyboardInterrupt, which is passed on once nothing runs any more."""
        with ExitStack() as stack:
            stack.callback(self._cases.end)
            stack.enter_context(self._changes)
            self._notice()
            meanwhile = self._round(None)
            while meanwhile:
                meanwhile = self._round(meanwhile)
            self._screen.wait(len(self._look.read), self._changes.trouble)
            while True:
                meanwhile = self._round(meanwhile or self._wait())

    # ------------------------------------------------------------------ what changed

    def _wait(self) -> FileChanges:
        """Wait for a change that matters, and return it."""
        while True:
            self._changes.wait(max(LOOK_S, self._look_s / LOOK_SHARE))
            difference = self._notice()
            if difference:
                return difference

    def _notice(self) -> FileChanges:
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

    def _find_change(self) -> FileChanges | None:
        """Return what changed while something ran, if anything did; takes no time otherwise."""
        return (self._notice() or None) if self._changes.wait(0) else None

    # ------------------------------------------------------------------ what is run

    def _round(self, difference: FileChanges | None) -> FileChanges | None:
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

    def _run_all(self, judged: list[Result]) -> FileChanges | None:
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

    def _file(self, path: Path, done: list[Result]) -> tuple[bool, FileChanges | None]:
        """Run the cases of a file: whether all of them are judged, and what changed meanwhile."""
        loaded = self._load(path)
        for invalid in loaded.invalid:
            self._keep(invalid, done)
        last = len(loaded.scenarios) - 1
        for at, scenario in enumerate(loaded.scenarios):
            analysis = self._analysed(scenario)
            result, meanwhile = self._cases.run(path, analysis)
            if result is not None:
                self._keep(result, done)
            if meanwhile:
                return result is not None and at == last, meanwhile
        return True, None

    def _load(self, path: Path) -> LoadedFiles[Scenario]:
        selection = replace(self._selection, paths=self._look.named[path])
        try:
            return load_all(selection)
        except ScenarioError as error:  # a case or a line that was named is not there any more
            name = selection.paths[0]
            verdict = Verdict(status="INVALID", problems=error.problems)
            return LoadedFiles(
                scenarios=(), invalid=(Result(file=name, case=name, verdict=verdict),)
            )

    def _keep(self, result: Result, done: list[Result]) -> None:
        """Show a result; of its traces nothing is kept."""
        self._screen.result(result)
        self._memory.finish(result)
        slim = replace(result, verdict=Verdict(status=result.verdict.status), scenario=None)
        done.append(slim)


def _status(result: Result) -> str:
    return result.verdict.status
