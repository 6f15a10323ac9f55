"""One case, from what it says to its verdict: analysed, run, run several times.

Whatever keeps a case from being judged is a verdict on this case, never the end of the run.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from torch_scenarios.errors import (
    LaunchError,
    Problem,
    ScenarioError,
    UnsupportedError,
    WorkerError,
    make_warning,
)
from torch_scenarios.language.document import cases_as_written
from torch_scenarios.limits import DEFAULT, Limits, OverdueError, explain_bound, open_account
from torch_scenarios.model.needs import CAPABILITIES, Lacks, word_lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import FORECAST, TRAITS, traits_of
from torch_scenarios.pipeline.results import Analysis, Executor, Result
from torch_scenarios.reference.vector.footprint import Footprint
from torch_scenarios.verdict import ENDINGS, Finding, Status, Verdict, judge
from torch_scenarios.verdict.conduct import ENDS

#: held by what judges: one account is open in a process at a time, whose time is a case's own
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

    It raises nothing: a problem of the file, a bound that is exceeded, even a mistake of this
    program is the verdict of this case, and the next one is analysed.
    """
    from torch_scenarios.model.groups import plan
    from torch_scenarios.reference import derive, simulate

    began = time.perf_counter()
    if scenario.lacking is not None:
        verdict = Verdict(status="UNSUPPORTED", reason=scenario.lacking)
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=verdict)
    try:
        with open_account(limits) as opened:
            node_size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))  # under torchrun
            resolved = plan(scenario, limits=limits, node_size=node_size)
            predicted = simulate(resolved, limits=limits)
            if scenario.needs or (backend and traits_of(backend).lacks):
                predicted = replace(predicted, needs=derive(resolved, predicted, limits))
            asked = backend if not scenario.backends or backend in scenario.backends else None
            lacked = find_lacks(asked, scenario, predicted) if asked else ()
            verdict = judge(
                resolved,
                predicted,
                None,
                None if lacked else asked,
                torch=torch,
                limits=limits,
                cases_of=cases_as_written,
            )
        verdict = _warn_of_refuted(predicted, verdict)
        if asked and lacked:
            verdict = _warn_of_lacking(asked, lacked, scenario, predicted, verdict)
        if torch is not None:
            verdict = _check_version(scenario, torch, verdict)
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
        too_large=_refuse_size(opened.run_bytes, limits, scenario),
        strict=strict,
        limits=limits,
    )


def find_lacks(backend: str, scenario: Scenario, predicted: Trace) -> tuple[str, ...]:
    """Return the words that a case needs and a known backend lacks.

    A file with a section for the backend says itself what comes of it there. What a backend makes
    of tags, and of messages that cross, is forecast: where that is nothing else, it lacks neither.
    Of a truncated program there is no forecast.
    """
    if predicted.needs is None or backend in scenario.expect.backends:
        return ()
    lacked = [word for word in predicted.needs.words if word in traits_of(backend).lacks]
    forecast = not scenario.truncated and predicted.on(backend) is predicted
    if forecast and FORECAST.issuperset(lacked):
        return ()
    return tuple(lacked)


def _warn_of_lacking(
    backend: str, lacked: tuple[str, ...], scenario: Scenario, predicted: Trace, verdict: Verdict
) -> Verdict:
    """Add a warning that a backend lacks what a case needs, with what it makes of the program.

    a backend without tags, of a program that receives by tag in another order than it was sent:
    a run on it is UNSUPPORTED; there it is predicted to deadlock, because ...
    """
    forecast = predicted.on(backend)
    ends = ""
    if forecast.outcome != predicted.outcome:
        because = f", because {forecast.because[0]}" if forecast.because else ""
        ends = f"; there it is predicted to {ENDS[forecast.outcome]}{because}"
    warned = make_warning(
        "backend_lacks",
        f"{word_lacks(backend, lacked)}: a run on {backend} is UNSUPPORTED{ends}",
        scenario.mark,
        f"state under `{backend}:` in `expect` what it does, or list the backends that the file is "
        f"for under `backends`",
    )
    return replace(verdict, warnings=(*verdict.warnings, warned))


def _warn_of_refuted(predicted: Trace, verdict: Verdict) -> Verdict:
    """Add a warning for each word that a file states and its program does not use."""
    refuted = () if predicted.needs is None else predicted.needs.refuted
    warned = [
        make_warning(
            "need_refuted",
            f"`needs` names `{each.word}`, and no rank of this program uses that: "
            f"{CAPABILITIES[each.word].means}",
            each.mark,
            f"leave `{each.word}` out: the analysis finds what a scenario needs",
        )
        for each in refuted
    ]
    if not warned:
        return verdict
    return replace(verdict, warnings=tuple(dict.fromkeys((*verdict.warnings, *warned))))


#: what a program may hold, and how many steps its ranks may take, for its values to be computed too
PROVED_BYTES, PROVED_STEPS, PROVED_RANKS = 2**26, 20_000, 64


def weigh(scenario: Scenario, limits: Limits = DEFAULT) -> Analysis:
    """Analyse a case for what it costs: by shapes alone, and by its values where these are few.

    Shapes are enough for traffic and memory, for any number of ranks; whether the values are right
    they do not say. So a small program is computed as for a verdict, and a mistake in it is found
    on the way. One whose traffic depends on values (a peer computed of a tensor) is computed too,
    however large it is.
    """
    from torch_scenarios.expressions.hollow import boundless
    from torch_scenarios.model.groups import plan
    from torch_scenarios.reference.vector.footprint import footprint

    wide = replace(limits, max_ranks=max(limits.max_ranks, scenario.world_size))
    if scenario.lacking is not None:
        return analyse(scenario, wide)
    try:
        with open_account(boundless(wide)):
            node_size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))  # under torchrun
            resolved = plan(scenario, limits=boundless(wide), node_size=node_size)
            found = footprint(resolved, limits=wide)
    except OverdueError as error:  # its values would take longer still
        return Analysis(scenario=scenario, plan=None, predicted=None, verdict=overdue(error))
    except (ScenarioError, MemoryError):
        found = None
    if found is None or _is_small(found, scenario.world_size):
        return replace(analyse(scenario, wide), footprint=found)
    return Analysis(
        scenario=scenario,
        plan=resolved,
        predicted=Trace(backend="shapes", outcome="completes", ranks=(), traffic=found.traffic),
        verdict=Verdict(status="PASSED"),
        footprint=found,
    )


def analyse_part(scenario: Scenario, limits: Limits) -> Analysis:
    """Analyse what a few of many ranks did; by shapes alone where values are more than they may be.

    One rank of thousands is recorded with the sizes of its model. Its order, groups, sizes and
    dtypes show in the shapes; the values of all ranks fit nowhere, and need seconds to show that.
    """
    if scenario.world_size <= PROVED_RANKS:
        return analyse(scenario, limits)
    weighed = weigh(scenario, limits)
    found = weighed.footprint
    if found is None or found.bytes_held * scenario.world_size > limits.max_bytes:
        return weighed
    return analyse(scenario, limits)


def _is_small(found: Footprint, ranks: int) -> bool:
    """Whether the values of a program are soon computed."""
    steps = sum(np.size(each.ranks) for each in found.traffic.entries if hasattr(each, "ranks"))
    few = ranks <= PROVED_RANKS and steps <= PROVED_STEPS
    return few and found.bytes_held * ranks <= PROVED_BYTES


def _refuse_size(held: int, limits: Limits, scenario: Scenario) -> Problem | None:
    """Return what is wrong with a run in which the ranks hold so many bytes together, or None."""
    if held <= limits.max_run_bytes:
        return None
    message = (
        f"in a run its ranks hold {held} bytes: {explain_bound('max_run_bytes', limits)}; "
        "`scenario check` checks it without one"
    )
    return Problem(code="too_much_memory", message=message, mark=scenario.mark)


def runnable(analysis: Analysis) -> Analysis:
    """Return an analysis, INVALID where a run of the case would hold too much."""
    if analysis.too_large is None or analysis.verdict.status != "PASSED":
        return analysis
    verdict = Verdict(status="INVALID", problems=(analysis.too_large,))
    return replace(analysis, verdict=verdict)


def _check_version(scenario: Scenario, torch: str, verdict: Verdict) -> Verdict:
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
    plan, predicted, lacks = analysis.plan, analysis.predicted, Lacks()
    try:
        lacks = getattr(executor, "lacks", lacks)
        if lacks:
            predicted = add_needs(plan, predicted, lacks, analysis.limits)
        observed = executor.run(plan, predicted)
    except ScenarioError as error:
        verdict = Verdict(status="INVALID", problems=error.problems)
        ran_s = time.perf_counter() - began
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
                verdict = _allow_buffers(analysis, observed, backend, verdict)
            except Exception as error:  # noqa: BLE001 -- as in the analysis
                verdict = our_fault("verdict", error)
            judged_s = time.perf_counter() - began
    verdict = _warn_of_refuted(
        predicted, _apply_lacks(analysis.scenario.case, predicted, verdict, lacks.declared)
    )
    verdict = verdict.strict() if analysis.strict else verdict
    duration_s = max(0.0, ran_s - ready_s) + judged_s
    return replace(result_of(analysis), verdict=verdict, duration_s=duration_s, ready_s=ready_s)


#: why a rank may pass a send that nothing receives
_BUFFERS = "a backend may buffer what is sent"
_OPEN = f"the semantics leave the end open, because {_BUFFERS}"


def _allow_buffers(
    analysis: Analysis, observed: Trace, backend: str | None, verdict: Verdict
) -> Verdict:
    """Return the verdict on a backend of which nothing is known, which may buffer what is sent.

    Where ranks pass what only the buffers of a backend let them pass, it does not deviate. What
    the author states is then one of the ends that the semantics leave open.
    """
    from torch_scenarios.reference.backends import buffer_sends

    plan, predicted, name = analysis.plan, analysis.predicted, backend or observed.backend
    if plan is None or predicted is None or name in TRAITS or predicted.outcome != "deadlock":
        return verdict
    if verdict.status != "FAILED" or any(each.code not in ENDINGS for each in verdict.findings):
        return verdict
    buffered = buffer_sends(plan, predicted, analysis.limits)
    there = replace(predicted, forecasts={name: buffered})
    judged = judge(plan, there, observed, name, cases_of=cases_as_written)
    if any(each.code == "conduct_differs" for each in judged.findings):
        return verdict
    findings = tuple(
        replace(
            each, witness="expectation", prose=f"the end is left open, {_BUFFERS}: {each.prose}"
        )
        for each in verdict.findings
        if each.code != "conduct_differs"
    )
    note = f"{_BUFFERS}, and this one lets a rank pass a send that waits on others"
    return replace(
        verdict,
        status="FAILED" if findings else "PASSED",
        findings=findings,
        notes=(*verdict.notes, *(() if findings else (note,))),
    )


def add_needs(plan: Plan, predicted: Trace, lacks: Lacks, limits: Limits) -> Trace:
    """Return what is predicted, with what the case needs of that which a run may lack.

    A backend that lacks a word in general may be forecast to do without it in this case: such words
    are spared, unless a plugin declares itself that it lacks them.

    Raises ScenarioError where a bound is exceeded.
    """
    from torch_scenarios.reference import derive

    needs = derive(plan, predicted, limits) if predicted.needs is None else predicted.needs
    known = replace(predicted, needs=needs)
    spared = {
        word
        for name in lacks.backends
        for word in traits_of(name).lacks
        if word not in find_lacks(name, plan.scenario, known)
    }
    spared -= lacks.declared.keys()
    steps = {word: where for word, where in needs.steps.items() if word not in spared}
    return replace(predicted, needs=replace(needs, steps=steps))


def needs_of(scenario: Scenario, limits: Limits = DEFAULT) -> tuple[str, ...] | str:
    """Return the words of what a case needs, or in one text why they are not known."""
    found = analyse(scenario, limits)
    if found.plan is None or found.predicted is None:
        problems = [problem.message for problem in found.verdict.problems]
        return "; ".join([found.verdict.reason or found.verdict.status, *problems])
    from torch_scenarios.reference import derive

    try:
        return (found.predicted.needs or derive(found.plan, found.predicted, limits)).words
    except ScenarioError as error:
        return "; ".join(problem.message for problem in error.problems)


#: codes of findings on what a rank held
VALUES = frozenset({"value_differs", "shape_differs", "dtype_differs", "value_missing"})


def _apply_lacks(
    case: str, predicted: Trace, verdict: Verdict, declared: Mapping[str, str]
) -> Verdict:
    """Return UNSUPPORTED where a case needs what a plugin declares that it lacks.

    It is run all the same: a plugin that passes is asked to declare less, and a wrong value of a
    step that does without what is lacking is a wrong value.
    """
    needs = predicted.needs
    lacked = [] if needs is None else [word for word in needs.words if word in declared]
    if needs is None or not lacked or verdict.status == "INVALID":
        return verdict
    steps = frozenset().union(*(needs.steps[word] for word in lacked))
    wrong = [each for each in verdict.findings if each.code in VALUES and each.witness == "backend"]
    if wrong and not any(_may_follow(each, steps) for each in wrong):
        note = f"that it lacks {', '.join(f'`{word}`' for word in lacked)} explains no wrong value"
        return replace(verdict, notes=(*verdict.notes, f"{declared[lacked[0]]} declares {note}"))
    module = declared[lacked[0]]
    warnings = verdict.warnings
    if verdict.status == "PASSED":
        names = ", ".join(f"`{word}`" for word in lacked)
        said = make_warning(
            "lacks_what_it_passes",
            f"the plugin {module} declares that it lacks {names}, and it passes "
            f"{case}, which needs that",
            None,
            f"leave it out of `LACKS` in {module}, so that such cases count",
        )
        warnings = (*warnings, said)
    reason = word_lacks(f"the plugin {module}", lacked)
    return replace(verdict, status="UNSUPPORTED", findings=(), reason=reason, warnings=warnings)


def _may_follow(finding: Finding, steps: frozenset[int]) -> bool:
    """Return whether a wrong value may be that of a step which needs what is lacking, or follow."""
    return finding.index < 0 or any(index <= finding.index for index in steps) or not steps


def repeat(analysis: Analysis, executor: Executor, times: int) -> Result:
    """Run a case several times: FLAKY where it does not always come to the same.

    The result is that of the first run that failed, else of the first that came to nothing. A case
    that the analysis judges, or that cannot run, is tried once.

        PASSED PASSED FAILED    FLAKY, with what the third run showed
        PASSED INCONCLUSIVE     INCONCLUSIVE: nothing says that the case is flaky
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
