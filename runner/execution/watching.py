"""From a plan and its prediction: what the supervisor must watch a running scenario for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.execution.orders import Stop, Watch
from runner.scenario import Constant, PerRank, RaiseSpec, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.plan import Plan
    from runner.scenario import Expectation, Scenario
    from runner.trace import RankTrace, Trace

#: kinds that only the backend's own timeout brings about
OF_A_TIMEOUT = frozenset({"timeout", "peer_lost", "aborted"})
#: seconds that a deadlock must stand: one that is sure, one that the semantics leave open
SURE_S, OPEN_S = 0.03, 0.1
STANDING = frozenset({"blocked", "possibly_blocked"})


def watch_for(plan: Plan, predicted: Trace, *, confirm: str) -> Watch:
    """Return the watch for a plan.

    A predicted deadlock is broken as soon as it is confirmed, unless the scenario, or `confirm`,
    wants to see what the backend's timeout brings.
    """
    sure = predicted.outcome == "deadlock" and not predicted.open
    breaks = sure or "deadlock" in (predicted.outcome, *predicted.open)
    breaks = breaks and confirm != "timeout" and not wants_timeout(plan)
    return Watch(
        world_size=plan.world_size,
        patience_s=longest_timeout(plan),
        settle_s=SURE_S if sure else OPEN_S,
        stops={rank.rank: _stop(rank, predicted) for rank in predicted.ranks} if breaks else {},
    )


def _stop(rank: RankTrace, predicted: Trace) -> Stop:
    positions = set(rank.may_block)
    if rank.ending in STANDING and rank.events:
        positions.add((rank.events[-1].index, rank.events[-1].iteration))
    return Stop(
        ending=rank.ending,
        positions=frozenset(positions),
        may_end=rank.ending != "blocked" or bool(predicted.open),
    )


def wants_timeout(plan: Plan) -> bool:
    """Return whether the scenario itself expects what only a timeout brings about."""
    return any(OF_A_TIMEOUT.intersection(spec.kinds) for spec in _raises(plan.scenario))


def _raises(scenario: Scenario) -> Iterator[RaiseSpec]:
    yield from _specs(scenario.expect.at_end)
    for step in steps_of(scenario.steps):
        yield from _specs(step.expect)


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
