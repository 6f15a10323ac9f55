"""Plan -> Trace, by proof: what every rank must hold after every step, or where it must stand.

Deterministic and pure, in one process, without torch. The program is run under the reading that
every correct implementation satisfies (sends wait for their receiver; a rank leaves a collective
once it misses nothing that it needs), and where it stands still under other readings too, to tell
what buffering would change and where else a backend may leave a rank stuck.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.language.functions import numpy_arrays
from runner.language.limits import DEFAULT, Limits, beyond
from runner.reference.diagnosing import diagnosed
from runner.reference.schedules import Rest, agreed, explored, race, rest
from runner.reference.state import Reading
from runner.trace import Event, RankTrace, Trace

if TYPE_CHECKING:
    from runner.plan import Plan
    from runner.program import Arrays
    from runner.reference.findings import Finding
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState

Place = tuple[int, tuple[int, ...]]


def simulate(plan: Plan, *, limits: Limits = DEFAULT) -> Trace:
    """Return what the plan must do. Raises ScenarioError where a value cannot be computed.

    `max_steps` bounds the steps of all ranks together, `max_bytes` what is kept of their tensors,
    `max_schedules` the matchings of receives
    from anyone that are explored; hitting the latter is said in the trace's `limits`.
    """
    arrays = numpy_arrays(limits)
    runs, bounded = explored(plan, arrays, Reading(), limits=limits)
    main = runs[0]
    findings = list(main.findings)
    raced = race(runs)
    if raced is not None:
        findings = _by_schedule(runs, raced)
    findings += _hazards(plan, arrays, main, limits)
    strict = None
    if any(run.simulation.hurried for run in runs):
        strict = rest(plan, arrays, Reading(strict=True), limits=limits)
    if strict is not None and main.outcome == "completes":
        findings += _early_leavers(strict)
    may_block = _may_block(main, strict)
    opened = set().union(*(run.simulation.opened | {run.outcome} for run in runs))
    if any(may_block.values()):
        opened.add("deadlock")
    if any(finding.name == "buffering_hazard" for finding in findings):
        opened.add("completes")
    bounds = (
        (f"the receives from anyone were explored in {beyond('max_schedules', limits)}",)
        if bounded
        else ()
    )
    events = agreed(runs)
    return Trace(
        backend="reference",
        outcome=main.outcome,
        open=tuple(sorted(opened - {main.outcome})),
        ranks=tuple(
            _rank_trace(state, events[state.rank], tuple(sorted(may_block.get(state.rank, ()))))
            for state in main.simulation.ranks
        ),
        diagnoses=diagnosed(findings, main.needs),
        waits=tuple(edge.wait() for need in main.needs for edge in need.edges()),
        limits=bounds,
        duration_s=max((state.clock_s for state in main.simulation.ranks), default=0.0),
    )


def _by_schedule(runs: list[Rest], raced: Finding) -> list[Finding]:
    """Return all findings; those that only some schedules show are sides of the race."""
    kinds = [{finding.kind for finding in run.findings} for run in runs]
    always = set.intersection(*kinds)
    found = {(f.name, f.kind): f for run in runs for f in run.findings}
    return [
        raced,
        *(f if f.kind in always else replace(f, kind=raced.kind) for f in found.values()),
    ]


def _rank_trace(state: RankState, events: list[Event], may_block: tuple[Place, ...]) -> RankTrace:
    ending = state.state
    if ending == "blocked":
        call = state.call
        assert call is not None  # noqa: S101 -- a blocked rank stands in a call
        stuck = Event(
            index=call.step.index,
            label=call.label,
            iteration=call.iteration,
            state="blocked",
            start_s=state.clock_s,
        )
        events = [*events, stuck]
    return RankTrace(
        rank=state.rank,
        initial=state.initial,
        events=tuple(events),
        ending=ending,
        died=state.died,
        may_block=may_block,
    )


def _hazards(plan: Plan, arrays: Arrays, main: Rest, limits: Limits) -> list[Finding]:
    """Find rings that only a backend which buffers sends would not be caught in."""
    rings = [finding for finding in main.findings if finding.name == "circular_wait"]
    if not rings or not main.simulation.mailbox.sends:
        return []
    buffered = rest(plan, arrays, Reading(buffered=True), limits=limits)
    stuck = {state.rank for state in buffered.simulation.ranks if state.state == "blocked"}
    return [
        replace(
            ring,
            name="buffering_hazard",
            prose="it finishes only where the backend buffers what is sent, which none need do",
        )
        for ring in rings
        if not stuck & set(ring.ranks)
    ]


def _early_leavers(strict: Rest) -> list[Finding]:
    """Find rings that only a backend is caught in whose collectives wait for every member.

    A program must not rely on a broadcast's source leaving before its leaves have come, nor on
    the opposite: any collective may synchronise, and need not (MPI 4.1, 6.14).
    """
    return [
        replace(
            ring,
            name="buffering_hazard",
            prose=(
                "it finishes only where a rank leaves a collective before all members have "
                f"entered, which none need let it: {ring.prose}"
            ),
            kind=f"early:{ring.kind}",
            also=("circular_wait", *ring.also),
        )
        for ring in strict.findings
        if ring.path
    ]


def _may_block(main: Rest, strict: Rest | None) -> dict[int, set[Place]]:
    """Return, by rank, where a correct backend may leave it although it misses nothing it needs."""
    found: dict[int, set[Place]] = {}
    for meeting in main.simulation.meetings.all():
        if meeting.complete and not meeting.spoiled:
            continue
        for joining in meeting.joined.values():
            call = joining.call
            places = found.setdefault(joining.rank, set())
            places.add((call.step.index, call.iteration))
            places |= _waits_for_it(main.simulation, joining.rank, call.step.handle)
    for here in main.simulation.creations.all():
        if len({creating.group.ranks for creating in here.values()}) > 1:
            for rank, creating in here.items():
                place = (creating.call.step.index, creating.call.iteration)
                found.setdefault(rank, set()).add(place)
    for state in strict.simulation.ranks if strict else ():
        if state.state == "blocked" and state.call is not None:
            found.setdefault(state.rank, set()).add((state.call.step.index, state.call.iteration))
    return found


def _waits_for_it(simulation: Simulation, rank: int, handle: str | None) -> set[Place]:
    """Return where a rank waited for an asynchronous operation."""
    if handle is None:
        return set()
    return {
        (event.index, event.iteration)
        for event in simulation.ranks[rank].events
        if event.label.startswith("wait ") and handle in event.label[5:].split(", ")
    }
