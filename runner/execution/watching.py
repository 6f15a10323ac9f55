"""From a plan and its prediction: what the supervisor must watch a running scenario for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.argument_types import LONGEST_S
from runner.execution import heartbeat
from runner.execution.orders import Stop, Watch
from runner.forms import Constant, PerRank
from runner.language.budget import session_left_s
from runner.scenario import RaiseSpec, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.plan import Plan
    from runner.scenario import Expectation
    from runner.trace import RankTrace, Trace

#: kinds that only the backend's own timeout brings about
OF_A_TIMEOUT = frozenset({"timeout", "peer_lost", "aborted"})
#: seconds that a deadlock must stand: a predicted one, and one that the semantics leave open, which
#: a busy machine must not make of a call that is only slow
SETTLE_S, DOUBT_S = 0.04, 0.75
#: seconds that all ranks stand at calls where a backend's own halt was forecast at others
ANYWHERE_S = 3.0
#: seconds that a timeout is taken for which only the ranks can compute
UNKNOWN_S = 3600.0
#: times its own timeouts and sleeps that a scenario may take
PATIENT = 3.0
STANDING = frozenset({"blocked", "possibly_blocked"})


def watch_for(
    plan: Plan,
    predicted: Trace,
    *,
    confirm: str,
    backend: str | None = None,
    max_seconds: float | None = None,
) -> Watch:
    """Return the watch for a plan, on a backend if one is named.

    It may take `max_seconds`, and where it states longer timeouts and sleeps three times these.

    A predicted deadlock is broken as soon as it is confirmed, unless the scenario's end, or
    `confirm`, asks for what the backend's own timeout brings. Ranks may stand where the semantics
    say and where the backend's forecast says; a forecast alone is given the longer time.
    """
    most_s = None if max_seconds is None else max(max_seconds, _stated_s(plan, predicted))
    left_s = session_left_s()
    ends = left_s is not None and (most_s is None or left_s < most_s)
    if ends:
        most_s = left_s
    forecast = predicted.on(backend)
    readings = (predicted,) if forecast is predicted else (predicted, forecast)
    halts = forecast.outcome == "deadlock"
    breaks = any("deadlock" in (each.outcome, *each.open) for each in readings)
    breaks = breaks and confirm != "timeout" and not _of_a_timeout(plan.scenario.expect.at_end)
    return Watch(
        world_size=plan.world_size,
        patience_s=longest_timeout(plan),
        settle_s=SETTLE_S if predicted.outcome == "deadlock" else DOUBT_S,
        anywhere_s=ANYWHERE_S if breaks and readings[1:] and halts else None,
        stopped_s=heartbeat.STOPPED_S,
        silent_s=heartbeat.SILENT_S,
        most_s=most_s,
        bound="--max-total-seconds" if ends else "--max-seconds",
        stops=_stops(plan, readings) if breaks else {},
    )


def _stated_s(plan: Plan, predicted: Trace) -> float:
    """Return three times the seconds of a plan's timeouts and sleeps, an hour of the latter."""
    return PATIENT * (longest_timeout(plan) + min(predicted.duration_s, LONGEST_S))


def _stops(plan: Plan, readings: tuple[Trace, ...]) -> dict[int, Stop]:
    """Return where each rank may be for good; where a step expects a timeout, nobody is."""
    passing = {step.index for step in steps_of(plan.scenario.steps) if _of_a_timeout(step.expect)}
    found: dict[int, Stop] = {}
    for reading in readings:
        for rank in reading.ranks:
            stop = _stop(rank, passing, reading)
            before = found.get(rank.rank, stop)
            found[rank.rank] = replace(
                stop,
                positions=before.positions | stop.positions,
                may_end=before.may_end or stop.may_end,
            )
    return found


def _stop(rank: RankTrace, passing: set[int], predicted: Trace) -> Stop:
    positions = set(rank.may_block)
    if rank.ending in STANDING and rank.events:
        positions.add((rank.events[-1].index, rank.events[-1].iteration))
    return Stop(
        ending=rank.ending,
        positions=frozenset(place for place in positions if place[0] not in passing),
        may_end=rank.ending != "blocked" or bool(predicted.open),
    )


def _of_a_timeout(expectation: Expectation | None) -> bool:
    """Return whether an expectation asks for what only a timeout brings about."""
    return any(OF_A_TIMEOUT.intersection(spec.kinds) for spec in _specs(expectation))


def _specs(expectation: Expectation | None) -> Iterator[RaiseSpec]:
    raises = expectation.raises if expectation else None
    if isinstance(raises, RaiseSpec):
        yield raises
    elif isinstance(raises, PerRank):
        specs = (*(spec for _, spec in raises.branches), raises.otherwise)
        yield from (spec for spec in specs if spec is not None)


def longest_timeout(plan: Plan) -> float:
    """Return the longest time, in seconds, that any call of the plan may block."""
    times = [plan.world.timeout_s]
    times += [group.timeout_s for creation in plan.creations for group in creation.groups]
    for step in steps_of(plan.scenario.steps):
        stated = step.arguments.get("timeout")
        if isinstance(stated, Constant) and isinstance(stated.value, int | float):
            times.append(float(stated.value))
        elif stated is not None:
            times.append(UNKNOWN_S)
    return max(times)


def replaced_timeout(plan: Plan, timeout_s: float) -> Plan:
    """Return the plan with another process-group timeout; groups that state their own keep it."""
    scenario = replace(plan.scenario, timeout_s=timeout_s)
    creations = tuple(
        creation
        if creation.spec.timeout_s is not None
        else replace(
            creation,
            groups=tuple(replace(group, timeout_s=timeout_s) for group in creation.groups),
        )
        for creation in plan.creations
    )
    made = {group.key: group for creation in creations for group in creation.groups}
    world = replace(plan.world, timeout_s=timeout_s)
    names = {
        name: tuple(made.get(group.key, world) for group in groups)
        for name, groups in plan.names.items()
    }
    return replace(plan, scenario=scenario, world=world, creations=creations, names=names)
