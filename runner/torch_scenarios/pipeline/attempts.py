"""One case, from what it says to its verdict: analysed, run, run several times.

Whatever keeps a case from being judged is a verdict on this case, never the end of the run.
"""

from __future__ import annotations

import os
import threading
import time
import traceback

from msgspec.structs import replace

from torch_scenarios.errors import (
    LaunchError,
    Problem,
    ScenarioError,
    UnsupportedError,
    WorkerError,
)
from torch_scenarios.language.document import cases_as_written
from torch_scenarios.limits import DEFAULT, Limits, OverdueError, accounted, beyond
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.results import Analysis, Executor, Result
from torch_scenarios.verdict import Status, Verdict, judge

#: held by whoever judges: one account is open in a process at a time, whose time is a case's own
_JUDGES = threading.Lock()


def analyse(
    scenario: Scenario,
    limits: Limits = DEFAULT,
    backend: str | None = None,
    *,
    strict: bool = False,
    torch: str | None = None,
) -> Analysis:
    """Plan, simulate and judge one case without a run; on one backend, if it is meant for that.

    With `strict` a warning is a failure. `torch` is a version of which alone it is asked.
    """
    from torch_scenarios.model.groups import plan
    from torch_scenarios.reference import simulate

    began = time.perf_counter()
    if scenario.lacking is not None:
        verdict = Verdict(status="UNSUPPORTED", reason=scenario.lacking)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    meant = not scenario.backends or backend in scenario.backends
    try:
        with accounted(limits) as opened:
            node_size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))  # under torchrun
            resolved = plan(scenario, limits=limits, node_size=node_size)
            predicted = simulate(resolved, limits=limits)
            verdict = judge(
                resolved,
                predicted,
                None,
                backend if meant else None,
                torch=torch,
                limits=limits,
                cases_of=cases_as_written,
            )
        if torch is not None:
            verdict = _meant_for(scenario, torch, verdict)
    except OverdueError as error:
        verdict = overdue(error)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    except ScenarioError as error:
        verdict = Verdict(status="INVALID", problems=error.problems)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    except MemoryError:
        reason = "the memory of this machine is too small for its analysis: use smaller tensors"
        verdict = Verdict(status="INCONCLUSIVE", reason=reason)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    except Exception as error:  # noqa: BLE001 -- a fault of ours costs one case, not the run
        verdict = our_fault("analysis", error)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    return Analysis(
        scenario=scenario,
        plan=resolved,
        predicted=predicted,
        verdict=verdict.strict() if strict else verdict,
        duration_s=time.perf_counter() - began,
        run_bytes=opened.run_bytes,
        too_large=_too_large(opened.run_bytes, limits, scenario),
        strict=strict,
    )


def _too_large(held: int, limits: Limits, scenario: Scenario) -> Problem | None:
    """Return what is wrong with a run in which the ranks hold so many bytes together, or None."""
    if held <= limits.max_run_bytes:
        return None
    message = (
        f"in a run its ranks hold {held} bytes: {beyond('max_run_bytes', limits)}; "
        "`scenario check` checks it without one"
    )
    return Problem(code="too_much_memory", message=message, mark=scenario.mark)


def runnable(analysis: Analysis) -> Analysis:
    """Return an analysis, INVALID where a run of the case would hold too much."""
    if analysis.too_large is None or analysis.verdict.status != "PASSED":
        return analysis
    verdict = Verdict(status="INVALID", problems=(analysis.too_large,))
    return replace(analysis, verdict=verdict)


def _meant_for(scenario: Scenario, torch: str, verdict: Verdict) -> Verdict:
    """Return UNSUPPORTED in place of a verdict about a version that a scenario leaves out."""
    reason = scenario.not_for(torch)
    return (
        verdict
        if reason is None
        else replace(verdict, status="UNSUPPORTED", findings=(), reason=reason)
    )


def overdue(error: OverdueError) -> Verdict:
    """Return the verdict on a file, or a case, that took more time than it may."""
    return Verdict(status="INCONCLUSIVE", reason=str(error))


def our_fault(stage: str, error: Exception) -> Verdict:
    """Return the verdict on a case that this program itself fails on; `-v` shows where."""
    reason = (
        f"its {stage} failed inside torch-scenarios ({type(error).__name__}: {error}): this is a "
        "bug of torch-scenarios; report it with this file and what `-v` shows"
    )
    where = "".join(traceback.format_exception(error)).rstrip()
    return Verdict(status="INCONCLUSIVE", reason=reason, notes=(where,))


def result_of(analysis: Analysis) -> Result:
    """Return the result of a case that was only analysed."""
    return case_result(analysis.scenario, analysis.verdict, analysis.duration_s)


def case_result(scenario: Scenario, verdict: Verdict, duration_s: float) -> Result:
    """Return the result of a case, with what reports say of the scenario."""
    return Result(
        file=scenario.source.path,
        case=scenario.case,
        verdict=verdict,
        duration_s=duration_s,
        scenario=scenario,
        description=scenario.description,
        tags=scenario.tags,
        world_size=scenario.world_size,
    )


def execute(analysis: Analysis, executor: Executor, backend: str | None = None) -> Result:
    """Run one case and judge it; whatever keeps it from running is a verdict, not an exception.

    A case that the analysis already found wrong is not run.
    """
    analysis = runnable(analysis)
    if analysis.verdict.status != "PASSED" or analysis.plan is None or analysis.predicted is None:
        return result_of(analysis)
    began = time.perf_counter()
    ready_s = judged_s = 0.0
    try:
        observed = executor.run(analysis.plan, analysis.predicted)
    except UnsupportedError as error:
        verdict = replace(analysis.verdict, status="UNSUPPORTED", reason=str(error))
        ran_s = time.perf_counter() - began
    except (LaunchError, WorkerError) as error:
        verdict = replace(analysis.verdict, status="INCONCLUSIVE", reason=str(error))
        ran_s = time.perf_counter() - began
    else:
        ran_s = time.perf_counter() - began
        ready_s = float(observed.environment.get("ready_s", 0.0))
        with _JUDGES:
            began = time.perf_counter()
            try:
                verdict = judge(
                    analysis.plan, analysis.predicted, observed, backend, cases_of=cases_as_written
                )
            except Exception as error:  # noqa: BLE001 -- as in the analysis
                verdict = our_fault("verdict", error)
            judged_s = time.perf_counter() - began
    verdict = verdict.strict() if analysis.strict else verdict
    duration_s = max(0.0, ran_s - ready_s) + judged_s
    return replace(result_of(analysis), verdict=verdict, duration_s=duration_s, ready_s=ready_s)


def repeated(analysis: Analysis, executor: Executor, times: int) -> Result:
    """Run a case several times: FLAKY where it does not always come to the same.

    The result is that of the first run that failed, else of the first that came to nothing. A
    case that the analysis judges, or that cannot run, is tried once.
    """
    first: dict[Status, Result] = {}
    attempts: list[Status] = []
    duration_s = 0.0
    for _ in range(times):
        result = execute(analysis, executor)
        status = result.verdict.status
        first.setdefault(status, result)
        attempts.append(status)
        duration_s += result.duration_s
        if result.verdict.observed is None:
            break
    shown = next(first[status] for status in _WORST_FIRST if status in first)
    if len(attempts) == 1:
        return shown
    verdict = shown.verdict
    if {"PASSED", "FAILED"} <= set(attempts):
        verdict = replace(verdict, status="FLAKY", reason=_flaky(attempts))
    return replace(shown, verdict=verdict, attempts=tuple(attempts), duration_s=duration_s)


_WORST_FIRST: tuple[Status, ...] = ("INVALID", "FAILED", "INCONCLUSIVE", "UNSUPPORTED", "PASSED")


def _flaky(attempts: list[Status]) -> str:
    which = [str(at) for at, status in enumerate(attempts, 1) if status == "FAILED"]
    return (
        f"it passed in {attempts.count('PASSED')} of {len(attempts)} runs and failed in "
        f"{len(which)} (run {', '.join(which)}); this is what the first of these showed"
    )
