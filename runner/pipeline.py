"""The whole way of a scenario, file to verdict, for whoever drives it.

The command line, the worker under torchrun and the pytest plugin all go this way: files are
loaded, every case is analysed and judged without a run, and only if no file is invalid does
anything start. Who executes is handed in; who reports listens. Nothing here prints, and nothing
here knows of a command line.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.crew import shared
from runner.language import discover, load
from runner.language.limits import DEFAULT, Limits
from runner.problems import (
    LaunchError,
    Problem,
    ScenarioError,
    UnsupportedError,
    WorkerError,
)
from runner.results import (
    FAILED,
    INCONCLUSIVE,
    INTERRUPTED,
    INVALID,
    NOTHING_SELECTED,
    PASSED,
    Analysis,
    Executor,
    Listener,
    Loaded,
    Outcome,
    Result,
    Selection,
)
from runner.selection import chosen
from runner.verdict import Verdict, judge

__all__ = [
    "FAILED",
    "INCONCLUSIVE",
    "INTERRUPTED",
    "INVALID",
    "NOTHING_SELECTED",
    "PASSED",
    "Analysis",
    "Executor",
    "Listener",
    "Loaded",
    "Outcome",
    "Result",
    "Selection",
    "analyse",
    "check",
    "execute",
    "load_all",
    "result_of",
    "run",
]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from runner.scenario import Scenario
    from runner.trace import Trace

# ---------------------------------------------------------------------------- the stages


def load_all(selection: Selection) -> Loaded:
    """Read every file; nothing is evaluated yet.

    Raises ScenarioError where the command line itself is wrong (a `-k` that cannot be read).
    """
    invalid: list[Result] = []
    files: dict[Path, Path] = {}
    for named in selection.paths:
        try:
            files.update({path.resolve(): path for path in discover([named])})
        except ScenarioError as error:
            invalid.append(_invalid(named, error.problems))
    scenarios: list[Scenario] = []
    for path in files.values():
        try:
            scenarios += load(path, sets=selection.sets, limits=selection.limits)
        except ScenarioError as error:
            invalid.append(_invalid(str(path), error.problems))
    try:
        kept = chosen(scenarios, selection.keyword, selection.tags)
    except ValueError as error:
        text = f"-k {selection.keyword!r} cannot be read: {error}"
        raise ScenarioError([Problem(code="bad_keyword", message=text)]) from error
    return Loaded(scenarios=tuple(kept), invalid=tuple(invalid))


def _invalid(path: str, problems: tuple[Problem, ...]) -> Result:
    return Result(file=path, case=path, verdict=Verdict(status="INVALID", problems=problems))


def analyse(scenario: Scenario, limits: Limits = DEFAULT) -> Analysis:
    """Plan, simulate and judge one case without a run."""
    from runner.plan import plan  # noqa: PLC0415 -- NumPy only once something is analysed
    from runner.reference import simulate  # noqa: PLC0415 -- the same

    began = time.perf_counter()
    try:
        resolved = plan(scenario, limits=limits)
        predicted = simulate(resolved, limits=limits)
        verdict = judge(scenario, predicted, limits=limits)
    except ScenarioError as error:
        verdict = Verdict(status="INVALID", problems=error.problems)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    except MemoryError:
        reason = "the memory of this machine is too small for its analysis: use smaller tensors"
        verdict = Verdict(status="INCONCLUSIVE", reason=reason)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    return Analysis(
        scenario=scenario,
        plan=resolved,
        predicted=predicted,
        verdict=verdict,
        duration_s=time.perf_counter() - began,
    )


def result_of(analysis: Analysis) -> Result:
    """Return the result of a case that was only analysed."""
    return _result(analysis.scenario, analysis.verdict, analysis.duration_s)


def _result(scenario: Scenario, verdict: Verdict, duration_s: float) -> Result:
    return Result(
        file=scenario.source.path,
        case=scenario.case,
        verdict=verdict,
        duration_s=duration_s,
        scenario=scenario,
    )


def execute(analysis: Analysis, executor: Executor, backend: str | None = None) -> Result:
    """Run one case and judge it; whatever keeps it from running is a verdict, not an exception.

    A case that the analysis already found wrong is not run.
    """
    if analysis.verdict.status != "PASSED" or analysis.plan is None or analysis.predicted is None:
        return result_of(analysis)
    began = time.perf_counter()
    try:
        observed = executor.run(analysis.plan, analysis.predicted)
    except UnsupportedError as error:
        verdict = replace(analysis.verdict, status="UNSUPPORTED", reason=str(error))
    except (LaunchError, WorkerError) as error:
        verdict = replace(analysis.verdict, status="INCONCLUSIVE", reason=str(error))
    else:
        verdict = judge(analysis.scenario, analysis.predicted, observed, backend)
    duration_s = time.perf_counter() - began
    return replace(result_of(analysis), verdict=verdict, duration_s=duration_s)


# ---------------------------------------------------------------------------- whole commands

#: scenarios in a row that fail to start for one reason, before the rest is spared the attempt
TRIES = 3


def check(selection: Selection, listener: Listener, *, traces: bool = False) -> Outcome:
    """Analyse every selected case; start nothing.

    With `traces` the listener is given what every rank is predicted to hold, not only how it ends.
    """
    began = time.perf_counter()
    loaded = load_all(selection)
    results: list[Result] = []
    interrupted = False

    def verdict_on(scenario: Scenario) -> tuple[Verdict, float]:
        analysis = analyse(scenario, selection.limits)
        verdict = analysis.verdict if traces else _slimmed(analysis.verdict)
        return verdict, analysis.duration_s

    try:
        with shared(verdict_on, loaded.scenarios) as verdicts:
            listener.begin(len(loaded.scenarios) + len(loaded.invalid))
            for result in loaded.invalid:
                _keep(results, result, listener)
            for scenario in loaded.scenarios:
                listener.running(scenario)
                verdict, duration_s = next(verdicts)
                _keep(results, _result(scenario, verdict, duration_s), listener)
    except KeyboardInterrupt:
        interrupted = True
    return _outcome(results, began, interrupted=interrupted)


def run(
    selection: Selection,
    launch: Callable[[], AbstractContextManager[Executor]],
    listener: Listener,
    *,
    stop_at_failure: bool = False,
) -> Outcome:
    """Load all, analyse all, and run what may pass; with an invalid file nothing runs.

    `launch` begins to start what executes; the analysis goes on meanwhile.
    """
    began = time.perf_counter()
    loaded = load_all(selection)
    results: list[Result] = []
    if loaded.invalid or not loaded.scenarios:
        # what the cases of the other files would come to is said too, if they are invalid
        analyses = [analyse(scenario, selection.limits) for scenario in loaded.scenarios]
        wrong = [result_of(each) for each in analyses if each.verdict.status == "INVALID"]
        return _only_invalid([*loaded.invalid, *wrong], listener, began)
    try:
        with launch() as executor:
            analyses = [analyse(scenario, selection.limits) for scenario in loaded.scenarios]
            wrong = [result_of(each) for each in analyses if each.verdict.status == "INVALID"]
            if wrong:
                return _only_invalid(wrong, listener, began)
            listener.begin(len(analyses))
            _run_each(analyses, executor, results, listener, stop_at_failure=stop_at_failure)
    except KeyboardInterrupt:
        return _outcome(results, began, interrupted=True)
    return _outcome(results, began)


def _run_each(
    analyses: list[Analysis],
    executor: Executor,
    results: list[Result],
    listener: Listener,
    *,
    stop_at_failure: bool,
) -> None:
    waiting = deque(analyses)
    analyses.clear()
    reasons: deque[str | None] = deque(maxlen=TRIES)
    while waiting:
        analysis = waiting.popleft()  # whose trace is free again once it is judged
        listener.running(analysis.scenario)
        if len(reasons) == TRIES and None not in reasons and len(set(reasons)) == 1:
            result = _not_tried(analysis, str(reasons[0]))
        else:
            result = execute(analysis, executor)
            verdict = result.verdict
            reasons.append(verdict.reason if _never_ran(verdict) else None)
        _keep(results, result, listener)
        if stop_at_failure and result.verdict.status == "FAILED":
            return


def _never_ran(verdict: Verdict) -> bool:
    return verdict.status == "INCONCLUSIVE" and verdict.observed is None


def _not_tried(analysis: Analysis, reason: str) -> Result:
    """Return the result of a case that an environment without hope did not get to run."""
    verdict = analysis.verdict
    if verdict.status == "PASSED":
        verdict = replace(verdict, status="INCONCLUSIVE", reason=reason)
    return replace(result_of(analysis), verdict=verdict)


def _only_invalid(invalid: Iterable[Result], listener: Listener, began: float) -> Outcome:
    results: list[Result] = []
    listener.begin(0)
    for result in invalid:
        _keep(results, result, listener)
    return _outcome(results, began)


def _keep(results: list[Result], result: Result, listener: Listener) -> None:
    """Report a result, and keep of it what later reports need: no tensor outlives its case."""
    listener.finish(result)
    results.append(replace(result, verdict=_slimmed(result.verdict)))


def _slimmed(verdict: Verdict) -> Verdict:
    return replace(verdict, predicted=_slim(verdict.predicted), observed=_slim(verdict.observed))


def _slim(trace: Trace | None) -> Trace | None:
    """Return a trace without its values: who ended where remains."""
    if trace is None:
        return None
    ranks = tuple(
        replace(
            rank,
            initial={},
            links={},
            events=tuple(replace(e, writes={}, slack={}, observed={}) for e in rank.events[-1:]),
        )
        for rank in trace.ranks
    )
    return replace(trace, ranks=ranks)


def _outcome(results: list[Result], began: float, *, interrupted: bool = False) -> Outcome:
    return Outcome(
        results=tuple(results),
        interrupted=interrupted,
        duration_s=time.perf_counter() - began,
    )
