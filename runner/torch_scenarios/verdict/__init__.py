"""(Scenario, Trace, Trace) -> Verdict: what came of a scenario, by three witnesses.

The author says what must be, the reference what the semantics make of the program, the run what
a backend did. They must agree on every value, on what every rank raises, and on how it ends; a
finding says which of the three stands alone. Without a run the verdict is the static one. Nothing
here starts a process, prints, or knows which executor made a trace.

What counts as compared: every expectation the author states, and with a run every tensor that a
step may store into. A scenario with neither (barriers alone) still asserts its outcome, which is
`completes` unless it says otherwise; the verdict then carries a note that it asserts no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause, Problem, ScenarioError
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.limits import Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.trace import Orders, Trace
from torch_scenarios.verdict.calls import judge_calls
from torch_scenarios.verdict.conduct import (
    GAVE_UP,
    gave_up,
    judge_conduct,
    judge_cost,
    judge_diagnoses,
    judge_ending,
    note_of,
    warn_of_open,
    warnings_of_gloo,
)
from torch_scenarios.verdict.finding import (
    ALONE,
    FINDING_CODES,
    STATUSES,
    Difference,
    Finding,
    Status,
    Verdict,
    Witness,
    ranks_text,
)
from torch_scenarios.verdict.hints import guess, judge_reach, warn_of_empty_slices
from torch_scenarios.verdict.values import Values, judge_agreement, judge_orders
from torch_scenarios.verdict.witnesses import Case, CasesOf, sections, start

__all__ = [
    "ALONE",
    "FINDING_CODES",
    "STATUSES",
    "Difference",
    "Finding",
    "Status",
    "Verdict",
    "Witness",
    "judge",
]

NO_VALUE = "it asserts its outcome alone: no value is stated or written"


def judge(
    plan: Plan,
    predicted: Trace,
    observed: Trace | None = None,
    backend: str | None = None,
    *,
    torch: str | None = None,
    reference: bool = True,
    limits: Limits | None = None,
    cases_of: CasesOf | None = None,
) -> Verdict:
    """Return the verdict on one case; with no observed trace the static one.

    `backend` chooses the author's section for it (the observed trace's own backend if left out);
    the static verdict without one judges every section against what the reference allows. So does
    `torch`, a version, for the sections of versions. Where a backend is known to make something
    else of the program, its forecast is the prediction. `reference` False switches the reference's
    opinion off, so that the author is compared with the run alone. `limits` bounds what
    expectations may compute. `cases_of` gives every case of a scenario's file: what one case does
    not reach, another may; without it only a file of one case is asked for what no rank reaches.
    The result is INVALID where an expectation cannot be computed.

    See the table at :class:`torch_scenarios.verdict.finding.Verdict`.
    """
    scenario = plan.scenario
    name = backend or (observed.backend if observed is not None else None)
    version = torch or (None if observed is None else observed.environment.get("torch"))
    taken, all_seen = _find_taken(predicted, observed) if reference else (None, False)
    try:
        parts = []
        for prediction, final in sections(scenario, predicted, observed, name, version):
            case = start(
                plan,
                prediction,
                observed,
                final,
                general=predicted,
                taken=taken,
                reference=reference,
                limits=limits,
            )
            case.cases_of = cases_of
            parts.append(_judge_on(case))
        if taken is None and all_seen and not any(part.findings for part in parts):
            parts = [_fail_in_all_orders(scenario, part) for part in parts]
    except ScenarioError as error:
        return Verdict(
            status="INVALID", predicted=predicted, observed=observed, problems=error.problems
        )
    merged = _leave_open(scenario, predicted, observed, _merge(parts))
    if name is None and reference and not merged.findings:
        warned = list(warnings_of_gloo(scenario, predicted, version))
        if not warned:
            return merged
        return replace(merged, warnings=_distinct([*merged.warnings, *warned]))
    return merged


#: codes of findings on how ranks end
ENDINGS = frozenset({"outcome_differs", "conduct_differs", "blocked_differs", "raises_differs"})


def _leave_open(
    scenario: Scenario, predicted: Trace, observed: Trace | None, verdict: Verdict
) -> Verdict:
    """Return INCONCLUSIVE on a run in which a rank waits for what lies beyond the program.

    Whether a truncated rank would come is not known.
    """
    if not scenario.truncated or observed is None or predicted.outcome != "completes":
        return verdict
    waiting = {rank.rank for rank in predicted.ranks if rank.ending == "possibly_blocked"}
    stuck = [
        rank
        for rank in observed.ranks
        if rank.ending == "blocked" or (rank.ending == "raised" and gave_up(rank))
    ]
    if not stuck or not waiting.issuperset(rank.rank for rank in stuck):
        return verdict
    if any(finding.code not in ENDINGS for finding in verdict.findings):
        return verdict
    first = stuck[0]
    where = f" in `{first.events[-1].label}`" if first.events else ""
    reason = (
        f"{ranks_text(tuple(rank.rank for rank in stuck))} "
        f"{'waits' if len(stuck) == 1 else 'wait'}{where} for what lies beyond the end of a "
        "truncated program"
    )
    return replace(verdict, status="INCONCLUSIVE", findings=(), reason=reason)


def _find_taken(predicted: Trace, observed: Trace | None) -> tuple[Trace | None, bool]:
    """Return what is predicted of the order of arrival that a run took, and whether one must be.

    A run that did not complete may have stopped anywhere. With receives from anyone the prediction
    is a tree of orders: the run is followed in it by what its ranks received, and judged by that
    branch.
    """
    if observed is None or not isinstance(predicted.orders, Orders):
        return None, False
    taken, all_seen = predicted.orders.follow(observed)
    return taken, all_seen and observed.outcome == "completes"


def _fail_in_all_orders(scenario: Scenario, verdict: Verdict) -> Verdict:
    """Return the verdict on a run of which no order of arrival gives what its ranks held."""
    finding = Finding(
        witness="backend",
        code="no_such_order",
        prose="what the ranks held in the run fits no order in which the messages can arrive",
        mark=scenario.mark,
        ranks=tuple(range(scenario.world_size)),
        name="order",
    )
    return replace(verdict, status="FAILED", findings=(finding,))


def _judge_on(case: Case) -> Verdict:
    """Return the verdict on a case by one section of what the author states."""
    predicted, observed = case.prediction, case.run
    values = Values(case)
    stated = [*values.judge(), *judge_orders(case, values), *judge_conduct(case)]
    stated += judge_calls(case)
    diagnoses = judge_diagnoses(case)
    ending = judge_ending(case, diagnoses)
    if predicted.limits and observed is None:
        # another order of arrival, which was not gone through, may show what this one does not
        diagnoses = [found for found in diagnoses if found.code != "diagnosis_absent"]
        if "completes" not in case.final.ends:
            ending = [found for found in ending if found.code != "outcome_differs"]
    agreement = judge_agreement(case, values.blamed)
    unreached = [*judge_reach(case), *judge_cost(case)]
    found = [
        replace(finding, guess=guess(case, finding)) if finding.differences else finding
        for finding in (*diagnoses, *ending, *stated, *agreement, *unreached)
    ]
    if not found:
        warn_of_open(case)
    warn_of_empty_slices(case)
    forecast = note_of(case)
    case.notes += [*predicted.notes, *([] if forecast is None else [forecast])]
    notes = case.notes if predicted.stores or case.compared > 1 else [*case.notes, NO_VALUE]
    status = _status(case.general, observed, found)
    return Verdict(
        status=status,
        findings=() if status == "UNSUPPORTED" else _unite_causes(found),
        predicted=replace(predicted, diagnoses=case.diagnoses) if case.relied else predicted,
        observed=observed,
        reason=_reason(case.general, observed, found),
        notes=tuple(dict.fromkeys(notes)),
        warnings=_distinct([*case.scenario.warnings, *predicted.warnings, *case.warnings]),
        compared=case.compared,
        costs=tuple(case.costs),
        silently_wrong=bool(predicted.diagnoses) and observed is not None and _is_silent(observed),
    )


#: expectations that follow from a fault and are named with it; the rest is counted
FOLLOWING = 3


def _unite_causes(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each cause: expectations that follow from another one are its notes.

    What is wrong with the program says why a value is undefined, or depends on an order. A file
    with one `irecv` too early and ten expectations on what it fills has one mistake, not eleven.
    """
    first: dict[str, int] = {}
    follow: dict[int, list[Finding]] = {}
    kept: list[Finding] = []
    for finding in found:
        origins = [finding.diagnosis] if finding.diagnosis else _origins(finding)
        causes = [] if finding.diagnosis else [*_causes(finding), *origins]
        at = next((first[cause] for cause in causes if cause in first), None)
        if at is None and finding.differences:
            at = next((at for at, each in enumerate(kept) if _precedes(each, finding)), None)
        if at is not None:
            follow.setdefault(at, []).append(finding)
            continue
        for origin in origins:
            first.setdefault(origin, len(kept))
        kept.append(finding)
    return tuple(
        replace(each, notes=(*each.notes, *_list_following(follow[at]))) if at in follow else each
        for at, each in enumerate(kept)
    )


def _precedes(fault: Finding, finding: Finding) -> bool:
    """Return whether a fault of the program may be why a value is not as it is stated."""
    later = finding.index == -1 or finding.index >= fault.index
    here = not set(fault.ranks).isdisjoint(finding.ranks)
    return bool(fault.diagnosis) and finding.witness == "expectation" and later and here


def _causes(finding: Finding) -> list[str]:
    """Return the diagnoses for which a stated value cannot be relied on."""
    if finding.code == "holds_in_some_orders":
        return ["message_race"]
    return [each.diagnosis or "undefined_read" for each in _list_undefined(finding)]


def _origins(finding: Finding) -> list[str]:
    """Return what left a stated value undefined: each is another one."""
    return [f"{each.origin}: {each.cause}" for each in _list_undefined(finding)]


def _list_undefined(finding: Finding) -> list[Undefined]:
    return [each.got for each in finding.differences if isinstance(each.got, Undefined)]


def _list_following(findings: Sequence[Finding]) -> list[Clause]:
    notes = [
        Clause(f"the value of `{each.name}` that is expected here may depend on this", each.mark)
        for each in findings[:FOLLOWING]
    ]
    left = len(findings) - FOLLOWING
    return notes + ([Clause(f"and so do {left} more expectations")] if left > 0 else [])


def _is_silent(observed: Trace) -> bool:
    """Return whether a run finished and nothing raised on the way."""
    raised = any(event.failure for rank in observed.ranks for event in rank.events)
    return observed.outcome == "completes" and not raised


def _environments_fault(observed: Trace | None, found: list[Finding]) -> bool:
    """Return whether all that went wrong is that time or memory ran out where neither need have.

    The semantics let the calls pass and the author expects it: the machine is too slow for the
    timeout, or too small.
    """
    if observed is None or observed.outcome != "error":
        return False
    raised = [
        set(event.failure.kinds)
        for rank in observed.ranks
        if rank.ending == "raised"
        for event in rank.events[-1:]
        if event.failure is not None
    ]
    began = any(kinds & {"timeout", "out_of_memory"} for kinds in raised)
    only = all(kinds & {"timeout", "peer_lost", "out_of_memory"} for kinds in raised)
    conduct = {"outcome_differs", "conduct_differs"}
    return began and only and all(finding.code in conduct for finding in found)


def _inability(predicted: Trace, observed: Trace | None, found: list[Finding]) -> str | None:
    """Return what the backend lacks, in its own words, where that is all that went wrong.

    The semantics let the program pass, and every rank that raised was told `unsupported`: a dtype,
    a reduce op, a call that the backend has not; or gave up on a rank that was.
    """
    if observed is None or observed.outcome != "error" or not _expects_to_pass(predicted):
        return None
    raised = [
        rank.events[-1].failure
        for rank in observed.ranks
        if rank.ending == "raised" and rank.events
    ]
    lacking = [item for item in raised if item is not None and "unsupported" in item.kinds]
    others = (item for item in raised if item not in lacking)
    if not lacking or any(item is None or not GAVE_UP & {*item.kinds} for item in others):
        return None
    if any(finding.witness != "backend" for finding in found):
        return None
    return lacking[0].message


def _status(predicted: Trace, observed: Trace | None, found: list[Finding]) -> Status:
    """Return what came of a case, from what was found.

    nothing found                                     PASSED, or INCONCLUSIVE at a limit
    the backend raised that it has no such thing       UNSUPPORTED
    time or memory ran out, where neither need have    INCONCLUSIVE
    anything else                                      FAILED
    """
    if found and _inability(predicted, observed, found) is not None:
        return "UNSUPPORTED"
    if found and not (_expects_to_pass(predicted) and _environments_fault(observed, found)):
        return "FAILED"
    return "INCONCLUSIVE" if found or predicted.limits else "PASSED"


def _expects_to_pass(predicted: Trace) -> bool:
    """Whether the semantics let the program complete, and leave nothing else open."""
    return predicted.outcome == "completes" and not predicted.open


def _reason(predicted: Trace, observed: Trace | None, found: list[Finding]) -> str | None:
    status = _status(predicted, observed, found)
    if status == "UNSUPPORTED":
        return _inability(predicted, observed, found)
    if status != "INCONCLUSIVE":
        return None
    if found:
        return (
            _word_exhausted(observed)
            + " that nothing explains: "
            + "; ".join(item.prose for item in found)
        )
    return "; ".join(predicted.limits)


def _word_exhausted(observed: Trace | None) -> str:
    failures = (
        [event.failure for rank in observed.ranks for event in rank.events[-1:]] if observed else []
    )
    out = any(failure and "out_of_memory" in failure.kinds for failure in failures)
    return "a lack of memory" if out else "a timeout"


def _distinct(warnings: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(warnings))


def _merge(parts: list[Verdict]) -> Verdict:
    """Join the verdicts on several sections: what they have in common is said once."""
    if len(parts) == 1:
        return parts[0]
    found: dict[tuple[object, ...], Finding] = {}
    for part in parts:
        for finding in part.findings:
            key = (finding.code, finding.witness, finding.index, finding.iteration, finding.prose)
            found.setdefault(key, finding)
    worst: Status = next(
        (status for status in ("FAILED", "INCONCLUSIVE") if any(p.status == status for p in parts)),
        "PASSED",
    )
    return replace(
        parts[0],
        status=worst,
        findings=tuple(found.values()),
        reason=next((part.reason for part in parts if part.reason), None),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        warnings=_distinct(each for part in parts for each in part.warnings),
    )
