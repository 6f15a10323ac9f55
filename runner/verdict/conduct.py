"""What each rank raised beside a step, and when: the author's `raises` and `elapsed`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.forms import PerRank
from runner.scenario import ElapsedBounds, RaiseSpec
from runner.verdict.finding import Finding, Witness
from runner.verdict.views import view_of
from runner.verdict.wording import ranks_text

if TYPE_CHECKING:
    from runner.problems import Mark
    from runner.scenario import Expectation
    from runner.trace import Event, RankTrace
    from runner.verdict.case import Case, Instance, Side

#: seconds by which a timer of the operating system, or of a backend, may be early
TIMER_ERROR_S = 0.005
#: seconds that only floating point adds to the reference's clock
CLOCK_ERROR_S = 1e-6

#: what a rank gets whose partner never comes: its own timeout, or the closing of one who gave up
GAVE_UP = frozenset({"timeout", "peer_lost", "aborted"})


def judge_conduct(case: Case) -> list[Finding]:
    """Return the findings on everything that steps are expected to raise, and when they end."""
    found: dict[tuple[object, ...], list[tuple[int, Finding]]] = {}
    for instance in case.instances():
        expect = instance.step.expect
        if expect is None or (expect.raises is None and expect.elapsed is None):
            continue
        for finding in (*_raises(case, instance, expect), *_elapsed(case, instance, expect)):
            key = (finding.index, finding.iteration, finding.code, finding.witness, finding.prose)
            found.setdefault(key, []).append((instance.rank, finding))
    findings = [_together(entries) for entries in found.values()]
    return findings + _raised_at_end(case)


def _together(entries: list[tuple[int, Finding]]) -> Finding:
    ranks = tuple(sorted(rank for rank, _ in entries))
    first = entries[0][1]
    return Finding(
        witness=first.witness,
        code=first.code,
        prose=f"{ranks_text(ranks)} {first.prose}",
        mark=first.mark,
        ranks=ranks,
        label=first.label,
        index=first.index,
        iteration=first.iteration,
        name=first.name,
    )


# ---------------------------------------------------------------------------- raises


def _raises(case: Case, instance: Instance, expect: Expectation) -> list[Finding]:
    side = instance.predicted or instance.observed
    if expect.raises is None or side is None:
        return []
    spec = _chosen(side, expect.raises)
    if not isinstance(spec, RaiseSpec):
        return []
    mine = None
    if case.reference and instance.predicted is not None:
        mine = _predicted_problem(instance.predicted.event, spec, case)
    seen = _observed_problem(instance.observed.event, spec) if instance.observed else None
    case.compared += 1
    mark = spec.mark or expect.mark
    findings = []
    if seen is not None and not mine:
        findings.append(_finding(instance.event, "backend", "raises_differs", seen, "raises"))
    elif mine and case.run is not None and instance.observed is not None and not seen:
        findings.append(_finding(instance.event, "reference", "raises_differs", mine, "raises"))
    elif mine:
        findings.append(_finding(instance.event, "expectation", "raises_differs", mine, "raises"))
    return [_at(finding, mark) for finding in findings]


def _chosen(side: Side, stated: PerRank[RaiseSpec] | RaiseSpec) -> RaiseSpec | None:
    if isinstance(stated, PerRank):
        chosen = view_of(side).process().choose(stated)
        return chosen if isinstance(chosen, RaiseSpec) else None
    return stated


def _predicted_problem(event: Event, spec: RaiseSpec, case: Case) -> str | None:
    """Return how the reference contradicts the author; None where it may be as stated."""
    opened = set(case.open)
    if event.failure is not None and event.state == "raised":
        kinds = set(event.failure.kinds)
    elif event.state in {"blocked", "possibly_blocked"}:
        kinds = set(GAVE_UP)
    else:
        kinds = set()
    if not spec.kinds:
        sure = event.state == "raised" and "completes" not in opened
        return f"would raise {_any(kinds)}, expected nothing" if sure else None
    if opened & {"error", "deadlock", "crash"}:
        return None
    if kinds & set(spec.kinds):
        return _observed_problem(event, _known(spec, event)) if event.failure else None
    return f"would raise {_any(kinds)}, expected {_any(set(spec.kinds))}"


def _known(spec: RaiseSpec, event: Event) -> RaiseSpec:
    """Return what the analysis can tell of a spec: not the words, unless the program chose them."""
    if event.failure is not None and event.failure.own:
        return spec
    return replace(spec, contains=None)


def _observed_problem(event: Event, spec: RaiseSpec) -> str | None:
    failure = event.failure
    if not spec.kinds:
        if failure is None:
            return None
        return f"raised {_any(set(failure.kinds))}, expected nothing{_said(event)}"
    wanted = _any(set(spec.kinds))
    if failure is None:
        return f"{_did(event)}, expected to raise {wanted}"
    if not set(failure.kinds) & set(spec.kinds):
        return f"raised {_any(set(failure.kinds))}, expected {wanted}{_said(event)}"
    if spec.contains is not None and spec.contains not in failure.message:
        return f"raised {wanted} without the words {spec.contains!r}{_said(event)}"
    return None


def _did(event: Event) -> str:
    return {"done": "returned", "blocked": "did not return"}.get(event.state, f"was {event.state}")


def _said(event: Event) -> str:
    words = event.failure.message.strip() if event.failure else ""
    return f": {words.splitlines()[0]}" if words else ""


def _any(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds)) or "nothing"


def _raised_at_end(case: Case) -> list[Finding]:
    """Judge the top-level `raises`: what a rank raised that no step expected."""
    stated = case.final.at_end.raises
    if stated is None:
        return []
    found: dict[tuple[Witness, str], list[tuple[int, Finding]]] = {}
    for rank in range(case.scenario.world_size):
        process = case.predicted.process(rank, case.predicted.final(rank), None, None)
        spec = process.choose(stated) if isinstance(stated, PerRank) else stated
        if not isinstance(spec, RaiseSpec):
            continue
        case.compared += 1
        mine = None
        if case.reference:
            mine = _end_problem(case.predicted.rank(rank), spec, predicted=True)
        if mine and (case.open or case.own_outcome):
            mine = None
        seen = _end_problem(case.observed.rank(rank), spec) if case.observed else None
        prose = mine or seen
        if prose:
            witness = _alone(mine, seen, ran=case.run is not None)
            mark = spec.mark or case.final.at_end.mark or case.final.mark
            finding = _raise_finding(witness, prose, mark)
            found.setdefault((witness, prose), []).append((rank, finding))
    return [_together(entries) for entries in found.values()]


def _alone(mine: str | None, seen: str | None, *, ran: bool) -> Witness:
    if not mine:
        return "backend"
    return "expectation" if seen or not ran else "reference"


def _raise_finding(witness: Witness, prose: str, mark: Mark | None) -> Finding:
    return Finding(witness=witness, code="raises_differs", prose=prose, mark=mark, name="raises")


def _end_problem(
    found: RankTrace | None, spec: RaiseSpec, *, predicted: bool = False
) -> str | None:
    last = found.events[-1] if found and found.ending == "raised" and found.events else None
    if last is None:
        if not spec.kinds:
            return None
        return f"raised nothing unexpected, expected {_any(set(spec.kinds))}"
    problem = _observed_problem(last, _known(spec, last) if predicted else spec)
    return f"{problem} (in `{last.label}`)" if problem else None


# ---------------------------------------------------------------------------- elapsed


def _elapsed(case: Case, instance: Instance, expect: Expectation) -> list[Finding]:
    side = instance.predicted or instance.observed
    if expect.elapsed is None or side is None:
        return []
    process = view_of(side).process()
    bounds = expect.elapsed
    if isinstance(bounds, PerRank):
        bounds = process.choose(bounds)
    if not isinstance(bounds, ElapsedBounds):
        return []
    least = None if bounds.min_s is None else process.seconds(bounds.min_s)
    most = None if bounds.max_s is None else process.seconds(bounds.max_s)
    mine = None
    if case.reference and instance.predicted is not None:
        mine = _bounds(instance.predicted.event, least, most, CLOCK_ERROR_S)
    seen = None
    if instance.observed is not None:
        # a rank that began late waits that much shorter for one that did not
        rank = case.observed.rank(instance.rank) if case.observed else None
        late_s = 0.0 if rank is None else rank.late_s
        seen = _bounds(instance.observed.event, least, most, late_s + TIMER_ERROR_S)
    case.compared += 1
    mark = bounds.mark or expect.mark
    if mine:
        witness: Witness = "reference" if instance.observed and not seen else "expectation"
        return [_at(_finding(instance.event, witness, "elapsed_differs", mine, "elapsed"), mark)]
    if seen:
        return [_at(_finding(instance.event, "backend", "elapsed_differs", seen, "elapsed"), mark)]
    return []


def _bounds(event: Event, least: float | None, most: float | None, error_s: float) -> str | None:
    """Compare the end of a step with its bounds, which count from the scenario's beginning."""
    ended = event.end_s if event.complete_s is None else event.complete_s
    if ended is None:
        return None
    if least is not None and ended < least - error_s:
        return f"passed this step after {ended:.3g} s, expected at least {least:g} s"
    if most is not None and ended > most + CLOCK_ERROR_S:
        return f"passed this step after {ended:.3g} s, expected at most {most:g} s"
    return None


def _finding(event: Event, witness: Witness, code: str, prose: str, name: str) -> Finding:
    return Finding(
        witness=witness,
        code=code,
        prose=prose,
        label=event.label,
        index=event.index,
        iteration=event.iteration,
        name=name,
    )


def _at(finding: Finding, mark: object) -> Finding:
    return replace(finding, mark=mark)  # type: ignore[arg-type]
