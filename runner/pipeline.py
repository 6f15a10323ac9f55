"""The whole way of a scenario, file to verdict, for whoever drives it.

The command line, the worker under torchrun and the pytest plugin all go this way: files are
loaded, every case is analysed and judged without a run, and only if no file is invalid does
anything start. Who executes is handed in; who reports listens. Nothing here prints, and nothing
here knows of a command line.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from runner.language import discover, load
from runner.language.limits import DEFAULT, Limits
from runner.problems import (
    LaunchError,
    Problem,
    ScenarioError,
    UnsupportedError,
    WorkerError,
)
from runner.selection import chosen
from runner.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from runner.plan import Plan
    from runner.scenario import Scenario
    from runner.trace import Trace

PASSED, FAILED, INVALID, INTERRUPTED = 0, 1, 2, 130
INCONCLUSIVE, NOTHING_SELECTED = 3, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which files and cases are meant, and with which parameters and bounds they are read."""

    paths: tuple[str, ...]
    keyword: str | None = None
    tags: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one case; of a whole file where it is INVALID (`case` is then its path)."""

    file: str
    case: str
    verdict: Verdict
    duration_s: float = 0.0
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A case before it runs: its plan, what the reference predicts, and the static verdict."""

    scenario: Scenario
    plan: Plan | None
    predicted: Trace | None
    verdict: Verdict
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All files, read: the selected cases, and a result for each file that is invalid."""

    scenarios: tuple[Scenario, ...]
    invalid: tuple[Result, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a whole command came to: every result so far, whether it was cut short, how long."""

    results: tuple[Result, ...]
    interrupted: bool = False
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code: interrupted, invalid, failed, inconclusive, nothing selected, passed."""
        found = {result.verdict.status for result in self.results}
        if self.interrupted:
            return INTERRUPTED
        if not self.results:
            return NOTHING_SELECTED
        codes = {"INVALID": INVALID, "FAILED": FAILED, "INCONCLUSIVE": INCONCLUSIVE}
        return next((code for status, code in codes.items() if status in found), PASSED)


class Executor(Protocol):
    """Runs plans on a backend: the launcher, or the worker that torchrun started."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return what happened. Raises UnsupportedError or LaunchError."""


class Listener(Protocol):
    """Hears how far it is: a report on a terminal, a progress bar, nothing at all."""

    def begin(self, total: int) -> None:
        """Hear how many cases are selected."""

    def running(self, scenario: Scenario) -> None:
        """Hear that a case starts."""

    def finish(self, result: Result) -> None:
        """Hear what came of a case; called once for each result."""


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
    except ScenarioError as error:
        verdict = Verdict(status="INVALID", problems=error.problems)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    return Analysis(
        scenario=scenario,
        plan=resolved,
        predicted=predicted,
        verdict=judge(scenario, predicted, limits=limits),
        duration_s=time.perf_counter() - began,
    )


def result_of(analysis: Analysis) -> Result:
    """Return the result of a case that was only analysed."""
    return Result(
        file=analysis.scenario.source.path,
        case=analysis.scenario.case,
        verdict=analysis.verdict,
        duration_s=analysis.duration_s,
        scenario=analysis.scenario,
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


def check(selection: Selection, listener: Listener) -> Outcome:
    """Analyse every selected case; start nothing."""
    began = time.perf_counter()
    loaded = load_all(selection)
    results: list[Result] = []
    listener.begin(len(loaded.scenarios) + len(loaded.invalid))
    for result in loaded.invalid:
        _keep(results, result, listener)
    interrupted = False
    try:
        for scenario in loaded.scenarios:
            listener.running(scenario)
            _keep(results, result_of(analyse(scenario, selection.limits)), listener)
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
    analyses: Sequence[Analysis],
    executor: Executor,
    results: list[Result],
    listener: Listener,
    *,
    stop_at_failure: bool,
) -> None:
    for analysis in analyses:
        listener.running(analysis.scenario)
        result = execute(analysis, executor)
        _keep(results, result, listener)
        if stop_at_failure and result.verdict.status == "FAILED":
            return


def _only_invalid(invalid: Iterable[Result], listener: Listener, began: float) -> Outcome:
    results: list[Result] = []
    listener.begin(0)
    for result in invalid:
        _keep(results, result, listener)
    return _outcome(results, began)


def _keep(results: list[Result], result: Result, listener: Listener) -> None:
    """Report a result, and keep of it what later reports need: no tensor outlives its case."""
    listener.finish(result)
    verdict = result.verdict
    results.append(
        replace(
            result,
            verdict=replace(
                verdict, predicted=_slim(verdict.predicted), observed=_slim(verdict.observed)
            ),
        )
    )


def _slim(trace: Trace | None) -> Trace | None:
    """Return a trace without its values: who ended where remains."""
    if trace is None:
        return None
    ranks = tuple(
        replace(
            rank,
            initial={},
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
