"""The whole way of a scenario, file to verdict, for each of its callers.

The command line, the worker under torchrun and the pytest plugin all go this way: files are
loaded, every case is analysed and judged without a run, and only if no file is invalid does
anything start. Who executes is handed in; who reports listens. Nothing here prints, and nothing
here knows of a command line.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError
from torch_scenarios.files import read_file
from torch_scenarios.limits import (
    Limits,
    explain_bound,
    freeze_objects,
    pause_collector,
    session,
    session_over,
)
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import analyse, execute, repeat, result_of, runnable
from torch_scenarios.pipeline.history import Proofs
from torch_scenarios.pipeline.interruption import hold_back, interruptible
from torch_scenarios.pipeline.parallel import ParallelRunner, ProcessPool
from torch_scenarios.pipeline.results import (
    FAILED,
    INCONCLUSIVE,
    INTERRUPTED,
    INVALID,
    NOTHING_SELECTED,
    PASSED,
    Analysis,
    Executor,
    FileCases,
    Listener,
    LoadedFiles,
    Outcome,
    Outline,
    Result,
    Selection,
    slim_down,
)
from torch_scenarios.pipeline.selection import NamedFiles, file_loader, files_of, gather, load_all
from torch_scenarios.verdict import Verdict

__all__ = [
    "FAILED",
    "INCONCLUSIVE",
    "INTERRUPTED",
    "INVALID",
    "NOTHING_SELECTED",
    "PASSED",
    "Analysis",
    "AnalysisRequest",
    "Executor",
    "Listener",
    "LoadedFiles",
    "Outcome",
    "Result",
    "Selection",
    "analyse",
    "check",
    "execute",
    "load_all",
    "repeat",
    "result_of",
    "run",
]


#: seconds beyond its own bound that an analysis gets before its process ends
GRACE_S = 15.0

#: scenarios in a row that fail to start for one reason, before the rest is spared the attempt
TRIES = 3

#: cases that may begin before one that still runs is done: their traces are kept until it is
MOST_AHEAD = 256


class AnalysisRequest(Struct, frozen=True, kw_only=True):
    """What is asked of each case that is analysed, and what of the answer is told.

    With `traces` the listener is given what every rank is predicted to hold, and the scenario, not
    only how it ends; with `costs` also what the program costs on any machine. Without `endings` it
    hears of a case that passes only that it does, and its warnings. `backend` asks for the result
    of a case there, in place of everywhere; so does `torch`, a version.
    """

    traces: bool = False
    costs: bool = False
    endings: bool = True
    backend: str | None = None
    torch: str | None = None

    def is_answered_by_names(self, selection: Selection) -> bool:
        """Return whether it asks no more than which cases pass, of whole files.

        Whatever chooses among the cases of a file looks at more of them than their names.
        """
        chosen = selection.keyword or selection.tags or selection.shard or selection.given
        whole = not chosen and not selection.only_failed
        return whole and not (self.traces or self.costs or self.endings)


def check(
    selection: Selection,
    listener: Listener,
    question: AnalysisRequest | None = None,
    *,
    stop_at_failure: bool = False,
    folder: Path | None = None,
) -> Outcome:
    """Analyse every selected case, or those up to the first failure; start nothing.

    `folder` keeps which files passed whole. Where their names are all that is asked for, they are
    not analysed again until they change.
    """
    import torch_scenarios.model.plan
    import torch_scenarios.reference  # noqa: F401 -- here once, not in every worker

    question = question or AnalysisRequest()
    began = time.perf_counter()
    results: list[Result] = []
    interrupted = False
    limits = selection.limits
    most_s = limits.max_seconds + GRACE_S
    ends_s = time.monotonic() + limits.max_total_seconds + GRACE_S
    proofs = None
    if folder is not None and question.is_answered_by_names(selection):
        proofs = Proofs(folder, selection, backend=question.backend, torch=question.torch)
    with ExitStack() as stack:
        stack.enter_context(session(limits))
        stack.enter_context(pause_collector())
        with interruptible():
            # Two rounds: first all files are read, then all cases are analysed, each by whichever
            # process is free. A case goes to the process that has read its file (`near`), so that a
            # file is mostly read once.
            files = files_of(selection)
            analyzer = _CaseAnalyzer(selection, files, question, proofs)
            pool = stack.enter_context(
                ProcessPool(analyzer.read, analyzer.judge, most_s=most_s, ends_s=ends_s)
            )
            numbers = range(len(files.found))
            cases = pool.results(analyzer.read, numbers, lost=analyzer.unread, near=int)
            loaded = gather(files, cases, selection)
        try:
            with interruptible(), freeze_objects():
                orders = [outline.at for outline in loaded.scenarios if not outline.proved]
                judged = pool.results(
                    analyzer.judge, orders, lost=_report_unjudged, near=itemgetter(0)
                )
                listener.begin(len(loaded.scenarios) + len(loaded.invalid))
                for result in loaded.invalid:
                    _keep(results, result, listener, costs=question.costs)
                for outline in loaded.scenarios:
                    listener.start(outline.case)
                    if outline.proved:
                        found = _JudgedCase(Verdict(status="PASSED"))
                    else:
                        over = session_over()
                        found = _JudgedCase(_report_unreached(limits)) if over else next(judged)
                    result = _make_result(outline, found)
                    _keep(results, result, listener, costs=question.costs, slim=not question.traces)
                    if stop_at_failure and result.verdict.status == "FAILED":
                        break
        except KeyboardInterrupt:
            interrupted = True
    outcome = _outcome(results, began, selection, loaded, interrupted=interrupted)
    return outcome if proofs is None else _keep_proofs(proofs, loaded.scenarios, outcome)


def _keep_proofs(proofs: Proofs, outlines: Sequence[Outline], outcome: Outcome) -> Outcome:
    """Keep which files passed whole, without a warning; the outcome says what was not analysed.

    A file is proved by its cases together: a key is of the whole text. A warning keeps it from
    that, for it is to be shown in the next run too.
    """
    passed = {
        (result.file, result.case)
        for result in outcome.results
        if result.verdict.status == "PASSED" and not result.verdict.warnings
    }
    files: dict[int, list[Outline]] = {}
    for outline in sorted(outlines, key=attrgetter("at")):
        files.setdefault(outline.at[0], []).append(outline)
    proved = {
        cases[0].key: tuple(each.case for each in cases)
        for cases in files.values()
        if cases[0].key and all((each.file, each.case) in passed for each in cases)
    }
    before = sum(outline.proved for outline in outlines)
    proofs.keep(proved)
    if not before:
        return outcome
    which = "1 case is" if before == 1 else f"{before} cases are"
    note = f"{which} of files that passed before and did not change (`--no-cache` checks all)"
    return replace(outcome, notes=(*outcome.notes, note))


class _JudgedCase(Struct, frozen=True):
    """What came of the analysis of a case; its `scenario` where reports want traces."""

    verdict: Verdict
    duration_s: float = 0.0
    scenario: Scenario | None = None


class _CaseAnalyzer:
    """Reads files and analyses their cases, in one process: what it has read stays here.

    There is one in each process of the pool, and one in this process, all made alike. A scenario is
    not sent from one to another: what crosses is a number of a file, and its outline or verdict.

        process 1   read(0) read(2) ...   judge((0, 0)) judge((2, 0))
        process 2   read(1) ...           judge((1, 0)) judge((0, 1))   reads file 0 again for this
    """

    def __init__(
        self, selection: Selection, files: NamedFiles, asked: AnalysisRequest, proofs: Proofs | None
    ) -> None:
        """Begin with nothing read. Raises ScenarioError where a `-k` cannot be read."""
        self._selection = selection
        self._files = files
        self._asked = asked
        self._proofs = proofs
        self._load = file_loader(selection, files)
        #: the cases of files that were read here and are not analysed yet
        self._cases: dict[tuple[int, int], Scenario] = {}

    @pause_collector()
    def read(self, number: int) -> FileCases[Outline]:
        """Read the file of a number; return what its cases are.

        A file that was proved is only compared with its proof.
        """
        path, places = self._files.found[number]
        key, text = "", None
        if self._proofs is not None and all(place.whole for place in places):
            with suppress(ScenarioError):  # the loader says what is wrong with it
                text = read_file(path, self._selection.limits)
                key = self._proofs.key_of(path.name, text)
            if proved := self._proofs.cases_of(key):
                return FileCases(
                    cases=tuple(
                        Outline(file=str(path), case=case, at=(number, at), key=key, proved=True)
                        for at, case in enumerate(proved)
                    )
                )
        loaded = self._load(number, text)
        self._cases |= {(number, at): case for at, case in enumerate(loaded.cases)}
        return FileCases(
            cases=tuple(
                Outline(
                    file=case.file,
                    case=case.case,
                    at=(number, at),
                    description=case.description,
                    tags=case.tags,
                    world_size=case.world_size,
                    key=key,
                )
                for at, case in enumerate(loaded.cases)
            ),
            invalid=loaded.invalid,
            problems=loaded.problems,
        )

    @pause_collector()
    def judge(self, at: tuple[int, int]) -> _JudgedCase:
        """Analyse a case; its file is read again where another process had read it.

        What it makes for many ranks is gone before the collector may walk over it.
        """
        if at not in self._cases:
            loaded = self.read(at[0])
            if at not in self._cases:
                changed = Verdict(status="INCONCLUSIVE", reason="its file changed meanwhile")
                return _JudgedCase(loaded.invalid.verdict if loaded.invalid else changed)
        asked, selection = self._asked, self._selection
        scenario = self._cases.pop(at)
        analysis = analyse(
            scenario, selection.limits, asked.backend, strict=selection.strict, torch=asked.torch
        )
        verdict = analysis.verdict
        if not asked.endings and verdict.status == "PASSED":
            return _JudgedCase(
                Verdict(status="PASSED", warnings=verdict.warnings), analysis.duration_s
            )
        if not asked.traces:
            return _JudgedCase(slim_down(verdict, costs=asked.costs), analysis.duration_s)
        if asked.costs and verdict.predicted is not None and verdict.predicted.traffic is not None:
            _ = verdict.predicted.traffic.structure  # known, it travels with the result
        return _JudgedCase(verdict, analysis.duration_s, scenario)

    def unread(self, number: int, late: bool) -> FileCases[Outline]:  # noqa: FBT001 -- as a crew asks
        """Return what came of a file whose reader ended with it."""
        path = str(self._files.found[number][0])
        verdict = _report_unjudged((number, 0), late).verdict
        return FileCases(invalid=Result(file=path, case=path, verdict=verdict))


def _make_result(outline: Outline, judged: _JudgedCase) -> Result:
    return Result(
        file=outline.file,
        case=outline.case,
        verdict=judged.verdict,
        duration_s=judged.duration_s,
        scenario=judged.scenario,
        description=outline.description,
        tags=outline.tags,
        world_size=outline.world_size,
    )


def _report_unreached(limits: Limits) -> Verdict:
    """Return the verdict on a case that the session had no time for."""
    reason = f"there was no time left for it: {explain_bound('max_total_seconds', limits)}"
    return Verdict(status="INCONCLUSIVE", reason=reason)


def _report_unjudged(_: tuple[int, int], late: bool) -> _JudgedCase:  # noqa: FBT001 -- as a crew asks
    """Return the verdict on a case whose analysis ended with its process."""
    reason = "the process of its analysis was killed: is the memory of this machine too small?"
    if late:
        reason = "its analysis takes longer than allowed (`--limit seconds=N` raises it)"
    return _JudgedCase(Verdict(status="INCONCLUSIVE", reason=reason))


def run(
    selection: Selection,
    launch: Callable[[], AbstractContextManager[Executor]],
    listener: Listener,
    *,
    stop_at_failure: bool = False,
    repeat: int = 1,
    costs: bool = False,
    jobs: int = 1,
) -> Outcome:
    """Load all, analyse all, and run what may pass; with an invalid file nothing runs.

    `launch` begins to start what executes; the analysis goes on meanwhile. Each case is run
    `repeat` times. With `costs` results tell what a program costs on any machine. With several
    `jobs` there are as many launches, of which each takes the next case once it is free; they have
    an `abandon` then. The results are the same, in the same order.
    """
    how = _RunOptions(
        stop_at_failure=stop_at_failure, repeat=repeat, costs=costs, limits=selection.limits
    )
    with session(selection.limits):
        return _run(selection, launch, listener, how, jobs)


class _RunOptions(Struct, frozen=True, kw_only=True):
    """How the cases of a run are run: what does not change from one case to the next."""

    stop_at_failure: bool
    repeat: int
    costs: bool
    limits: Limits


def _run(
    selection: Selection,
    launch: Callable[[], AbstractContextManager[Executor]],
    listener: Listener,
    how: _RunOptions,
    jobs: int,
) -> Outcome:
    """Read, analyse and run what is selected, and return what came of all cases."""
    began = time.perf_counter()
    with interruptible():
        loaded = load_all(selection)
    results: list[Result] = []
    interrupted = False
    # Three phases. All files are read; all cases are analysed, while the processes that will run
    # them start; and then, only if none is invalid, they are run. A mistake in the last of 300
    # files is so found before the first has run.
    # an interrupt stops what executes undisturbed by another: `launch` is outside
    try:
        if not loaded.scenarios or any(map(_is_invalid, loaded.invalid)):
            # what the cases of the other files would come to is said too, if they are invalid
            with interruptible():
                wrong = filter(_is_invalid, map(result_of, _analyse_all(loaded, selection)))
                _report([*loaded.invalid, *wrong], listener, results)
        else:
            most = min(jobs, len(loaded.scenarios))
            with ExitStack() as stack:
                executors = [stack.enter_context(launch()) for _ in range(most)]
                with interruptible():
                    analyses = _analyse_all(loaded, selection)
                    invalid = [each for each in map(result_of, analyses) if _is_invalid(each)]
                    # a file that was not read in time costs no other one its run
                    more = 0 if invalid else len(analyses)
                    _report([*loaded.invalid, *invalid], listener, results, more=more)
                    gc.collect()  # what the analyses left, which is not to stay for as long
                if not invalid:
                    _run_all(analyses, executors, results, listener, how)
    except KeyboardInterrupt:
        interrupted = True
    outcome = _outcome(results, began, selection, loaded, interrupted=interrupted)
    return replace(outcome, repeat=how.repeat)


def _analyse_all(loaded: LoadedFiles[Scenario], selection: Selection) -> list[Analysis]:
    limits, strict = selection.limits, selection.strict
    analyses = (analyse(scenario, limits, strict=strict) for scenario in loaded.scenarios)
    return [runnable(analysis) for analysis in analyses]


def _is_invalid(result: Result) -> bool:
    return result.verdict.status == "INVALID"


def _run_all(
    analyses: list[Analysis],
    executors: Sequence[Executor],
    results: list[Result],
    listener: Listener,
    how: _RunOptions,
) -> None:
    if len(executors) == 1:
        with interruptible(), freeze_objects():
            _run_each(analyses, executors[0], results, listener, how)
        return

    def conduct(executor: Any, analysis: Analysis) -> Result:
        return repeat(analysis, executor, how.repeat)

    # an interrupt ends the cases that run undisturbed by another
    beside = ParallelRunner[Any, Analysis, Result](executors, conduct)
    with beside, interruptible(), freeze_objects():
        _run_beside(analyses, beside, results, listener, how)


class _StartFailures(Struct):
    """Whether it makes sense to run one case more.

    Three cases in a row that fail to start for the same reason (no GPU, a backend that is not
    built) would be followed by all others: these get that reason without an attempt. One that runs
    in between begins the count anew.
    """

    limits: Limits
    reasons: deque[str | None] = field(default_factory=lambda: deque(maxlen=TRIES))

    def give_up(self, analysis: Analysis) -> Result | None:
        """Return the result of a case that is not even tried; None where it is."""
        if session_over():
            return _give_up(analysis, str(_report_unreached(self.limits).reason))
        if len(self.reasons) == TRIES and None not in self.reasons and len(set(self.reasons)) == 1:
            return _give_up(analysis, str(self.reasons[0]))
        return None

    def note(self, verdict: Verdict) -> None:
        """Take in what came of a case that was tried.

        What ran at all counts as a start, even if it failed.
        """
        self.reasons.append(verdict.reason if _is_unstarted(verdict) else None)


def _stops(result: Result, how: _RunOptions) -> bool:
    return how.stop_at_failure and result.verdict.status in {"FAILED", "FLAKY"}


def _run_each(
    analyses: list[Analysis],
    executor: Executor,
    results: list[Result],
    listener: Listener,
    how: _RunOptions,
) -> None:
    """Run one case after the other."""
    waiting = deque(analyses)
    analyses.clear()
    failures = _StartFailures(how.limits)
    while waiting:
        analysis = waiting.popleft()  # whose trace is free again once it is judged
        listener.start(analysis.scenario.case)
        result = failures.give_up(analysis)
        if result is None:
            result = repeat(analysis, executor, how.repeat)
            failures.note(result.verdict)
        _keep(results, result, listener, costs=how.costs)
        if _stops(result, how):
            return


def _run_beside(
    analyses: list[Analysis],
    beside: ParallelRunner[Any, Analysis, Result],
    results: list[Result],
    listener: Listener,
    how: _RunOptions,
) -> None:
    """Run a case on each executor at a time, begun and reported in their order.

    The ranks that run at a time are at most `max_ranks`, and what they hold is at most
    `max_run_bytes`. After a failure that stops the run no other case begins; those that come after
    it are not reported, although they may have run.

        begun      0 1 2 3       3 waits until the ranks of 0, 1 and 2 leave room for its own
        done       1 0 2 3
        reported   0 1 2 3       1 is kept in `done` until 0 is reported
    """
    waiting = deque(enumerate(analyses))
    total = len(waiting)
    analyses.clear()
    failures = _StartFailures(how.limits)
    running: dict[int, _Load] = {}
    done: dict[int, Result] = {}
    stopped = False
    for at in range(total):
        while at not in done:
            while waiting and not stopped and _may_begin(waiting[0], at, beside, running, how):
                number, analysis = waiting.popleft()
                listener.start(analysis.scenario.case)
                lost = failures.give_up(analysis)
                if lost is not None:
                    done[number] = lost
                    continue
                running[number] = _load(analysis)
                beside.begin(number, analysis)
                del analysis
            if at not in done:
                number, result = beside.next()
                del running[number]
                failures.note(result.verdict)
                stopped = stopped or _stops(result, how)
                done[number] = result
        result = done.pop(at)
        _keep(results, result, listener, costs=how.costs)
        if _stops(result, how):
            return


class _Load(Struct, frozen=True, kw_only=True):
    """What a case asks of the machine while it runs."""

    ranks: int
    held_bytes: int


def _load(analysis: Analysis) -> _Load:
    return _Load(ranks=analysis.scenario.world_size, held_bytes=analysis.run_bytes)


def _may_begin(
    following: tuple[int, Analysis],
    reported: int,
    beside: ParallelRunner[Any, Analysis, Result],
    running: Mapping[int, _Load],
    how: _RunOptions,
) -> bool:
    """Return whether the following case may begin beside those that run; alone it always may.

    Cases begin in order: one that is too large for what is free now waits, and those behind it with
    it. Else a case of 64 ranks would wait until all small ones are done.
    """
    number, analysis = following
    if not beside.is_free or number - reported > MOST_AHEAD:
        return False
    together = [*running.values(), _load(analysis)]
    return not running or (
        sum(each.ranks for each in together) <= how.limits.max_ranks
        and sum(each.held_bytes for each in together) <= how.limits.max_run_bytes
    )


def _is_unstarted(verdict: Verdict) -> bool:
    return verdict.status == "INCONCLUSIVE" and verdict.observed is None


def _give_up(analysis: Analysis, reason: str) -> Result:
    """Return the result of a case that was not run, as nothing starts here."""
    verdict = analysis.verdict
    if verdict.status == "PASSED":
        verdict = replace(verdict, status="INCONCLUSIVE", reason=reason)
    return replace(result_of(analysis), verdict=verdict)


def _report(
    found: Sequence[Result], listener: Listener, results: list[Result], *, more: int = 0
) -> None:
    """Begin with results that are there before anything runs; as many `more` follow."""
    listener.begin(len(found) + more)
    for result in found:
        _keep(results, result, listener)


def _keep(
    results: list[Result],
    result: Result,
    listener: Listener,
    *,
    costs: bool = False,
    slim: bool = False,
) -> None:
    """Report a result, and keep of it what later reports need: no tensor outlives its case.

    One that is `slim` has no more than that.

    An interrupt comes before or after: no report has a result that another one lacks.
    """
    with hold_back():
        kept = result if slim else replace(result, verdict=slim_down(result.verdict, costs=costs))
        results.append(kept)
        listener.finish(result)


def _outcome(
    results: list[Result],
    began: float,
    selection: Selection,
    loaded: LoadedFiles[Any],
    *,
    interrupted: bool,
) -> Outcome:
    return Outcome(
        results=tuple(results),
        interrupted=interrupted,
        duration_s=time.perf_counter() - began,
        cases=len(loaded.scenarios),
        selected=loaded.selected,
        shard=selection.shard,
        seed=selection.seed,
        notes=loaded.notes,
        warnings=loaded.warnings,
        strict=selection.strict,
    )
