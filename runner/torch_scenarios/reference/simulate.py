"""Plan -> Trace, by proof: what every rank must hold after every step, or where it must stand.

Deterministic and pure, in one process, without torch. The program is run under the semantics that
every correct implementation satisfies (sends wait for their receiver; a rank leaves a collective
once it misses nothing that it needs), and where it stands still under other readings too, to tell
what buffering would change and where else a backend may leave a rank stuck. What a known backend
makes of it is read once more, when a caller asks (:mod:`torch_scenarios.reference.backends`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from torch_scenarios.errors import Problem, ScenarioError, make_warning
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.limits import (
    DEFAULT,
    BoundError,
    Limits,
    account,
    explain_bound,
    open_account,
    pause_collector,
)
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.tolerance import propagate_error
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations.base import RemoteCall
from torch_scenarios.reference import schedules
from torch_scenarios.reference.backends import Forecasts, JointRun
from torch_scenarios.reference.diagnoses import diagnose
from torch_scenarios.reference.matching import HistoryMissingError, are_unlikely_pair
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.reference.state import RankState
from torch_scenarios.reference.symptoms import Symptom, list_ranks, place
from torch_scenarios.reference.walk import Simulation, StartState

#: ranks from which on it pays to take a step for all of them at once
MANY = 16


@pause_collector()
def simulate(plan: Plan, *, limits: Limits = DEFAULT) -> Trace:
    """Return what the plan must do. Raises ScenarioError where a value cannot be computed.

    `max_steps` bounds the steps of all ranks together, `max_bytes` what is kept of their tensors,
    `max_schedules` the matchings of receives from anyone that are explored; hitting the latter is
    said in the trace's `limits`.
    """
    with open_account(limits):
        trace, together = _read(plan, limits)
    drift = Drifts(plan, limits, wrong=any(each.name == UNEQUAL for each in trace.diagnoses))
    if any(isinstance(step.operation, RemoteCall) for step in steps_of(plan.scenario.steps)):
        return replace(trace, drift=drift)  # what backends make of the rest is not known apart
    return replace(trace, forecasts=Forecasts(plan, trace, limits, together), drift=drift)


def _read(plan: Plan, limits: Limits) -> tuple[Trace, JointRun | None]:
    """Return what the plan must do, by the engine that pays; and what ranks did together."""
    if plan.world_size >= MANY:
        from torch_scenarios.reference.vector import CohortError, CohortRun, take_together

        opened = account()
        left = opened.bytes_left if opened else 0
        try:
            found = take_together(plan, limits)
            if isinstance(found, CohortRun):
                return found.trace, found
            return walk(plan, limits, found), None
        except (CohortError, HistoryMissingError):
            # the program has something that only the engine below knows, from the beginning
            if opened:
                opened.bytes_left = left  # what was held is there no more
    return walk(plan, limits), None


def walk(plan: Plan, limits: Limits, start: StartState | None = None) -> Trace:
    """Return what the plan must do, rank by rank: of every program, wrong ones included.

    With a `start` the ranks go on from there.
    """
    arrays = numpy_arrays(limits)
    orders, bounded = schedules.explore(plan, arrays, Semantics(), limits=limits, start=start)
    runs = [run for run in orders if not run.simulation.cut]
    main = runs[0]
    raced = schedules.race(runs)
    findings = _unite_findings(orders, raced) if len(orders) > 1 else list(main.findings)
    opened = set().union(
        *(run.simulation.opened for run in orders), *({run.outcome} for run in runs)
    )
    disputed: list[schedules.ExaminedRun] = []
    if main.disputes():
        disputed = [
            schedules.rest(plan, arrays, Semantics(disputed=True), limits=limits, start=start)
        ]
    strict = None
    early = [run for run in orders if run.simulation.hurried]
    if opened - {main.outcome} or not all(run.synchronises() for run in early):
        strict = schedules.rest(plan, arrays, Semantics(strict=True), limits=limits, start=start)
    findings += schedules.find_unbuffered_rings(plan, arrays, main, limits, start)
    if strict is not None and main.outcome == "completes":
        findings += schedules.early_leavers(strict)
    may_block = schedules.may_stand([*runs, *disputed], strict)
    if any(may_block.values()) or main.beyond:
        opened.add("deadlock")
    if any(finding.name == "buffering_hazard" for finding in findings):
        opened.add("completes")
    bounds = (
        (f"not every matching was explored: {explain_bound(bounded, limits)}",) if bounded else ()
    )
    events = schedules.agreed(orders)
    made = Trace(
        backend="reference",
        outcome=main.outcome,
        open=tuple(sorted(opened - {main.outcome})),
        ranks=tuple(
            schedules.rank_trace(rank, [*runs, *disputed], events[rank], may_block.get(rank, ()))
            for rank in range(plan.world_size)
        ),
        diagnoses=diagnose(findings, main.needs),
        waits=main.waits,
        limits=bounds,
        warnings=tuple(_warnings(main.simulation)),
        notes=tuple(main.simulation.notes),
        orders=schedules.ExploredOrders(plan, orders, limits, start) if len(orders) > 1 else (),
        traffic=main.simulation.traffic,
        duration_s=main.duration_s,
    )
    for run in (*orders, *disputed, *(() if strict is None else (strict,))):
        run.simulation.dissolve()
    return made


def _unite_findings(orders: list[schedules.ExaminedRun], raced: Symptom | None) -> list[Symptom]:
    """Return all findings; those that only some orders show are sides of the race."""
    kinds = [{finding.kind for finding in run.findings} for run in orders if not run.simulation.cut]
    always = set.intersection(*kinds)
    found = {(f.name, f.kind): f for run in orders for f in run.findings}
    if raced is None:
        return list(found.values())
    return [
        raced,
        *(f if f.kind in always else replace(f, kind=raced.kind) for f in found.values()),
    ]


# What passes and should be looked at.


def _warnings(simulation: Simulation) -> Iterator[Problem]:
    """Warn of collectives that do nothing on a rank, and of steps that are likely to be no pair."""
    for calls in simulation.outside.values():
        call = next(iter(calls.values()))
        group = call.entry.group.name
        yield make_warning(
            "outside_of_group",
            f"{list_ranks(sorted(calls))} {'takes' if len(calls) == 1 else 'take'} `{call.label}` "
            f"outside of the group {group}: it does nothing there",
            call.step.mark,
            f"leave `ranks:` out, so that the members of {group} take it, or let it select members "
            "only",
        )
    for one, other in simulation.together.values():
        if are_unlikely_pair(simulation.plan, one.call.step, other.call.step):
            yield make_warning(
                "steps_apart",
                f"two steps meet in one collective: `{one.call.label}`{place(one)} on rank "
                f"{one.rank} and `{other.call.label}`{place(other)} on rank {other.rank}, with "
                "tensors of different names",
                one.call.step.mark,
                "if they are meant to meet, state the result next to one of them; else a rank has "
                "left out a step, or takes one too many",
            )


# How far a value may be off because reductions before it are: tried out, not derived.
#
# The order of a reduction is open, so that its result may be off by some roundings, its slack
# (:func:`torch_scenarios.model.tolerance.slack_of`). What later steps make of that depends on them:
# they may double it, carry it to another rank, or subtract what is nearly equal. The program is
# run again with every such result moved by its slack, to one side, to the other, and to either in
# turn; a value that moves may be off by twice as far as it moved most. A model that is not trained
# as one process would has other roundings: its weights and gradients are moved alike.
#
#     all_reduce x            0.1 on each of 4 ranks, float32: 0.4, off by 3 roundings, some 1.4e-7
#     y = 1000 * (x - 0.4)    nearly 0, and off by 1.4e-4: no relative tolerance of y allows that
#
# Why it is not derived: a bound of each operation on intervals would have to know every function of
# the language and every layer, and it grows with each step although errors cancel. Subtract a value
# from itself, and an interval has twice the width where the difference is exactly 0. Moving whole
# runs keeps what depends on one rounding together: x - x is 0 in each of them. It is the method of
# CESTAC (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993) and of Monte
# Carlo arithmetic (Parker, 1997), with two differences. A result is moved as far as its bound
# allows and no less, so that a few runs do; and the first two ways move all alike, so that the
# commonest cases, sums and products of one sign, are met at their worst.
#
# What is lost: six runs are no proof. A value that moves only where two reductions are off in
# opposite ways may be missed by "all up" and "all down"; the ways in turn and at random are there
# for it, and the factor of two for what they miss. A reading that was too narrow would call a right
# backend wrong, so that the corpus is run on real ones for it (docs/conformance.json).

#: the diagnosis of a model that is not what one process makes of it
UNEQUAL = "not_equivalent"

#: ways in which every reduction is moved: up, down, up and down in turn, and three at random
WAYS = 6

Place = tuple[int, tuple[int, ...]]


class Drifts:
    """How far the values of one program may be off by errors that go on; computed when it is asked.

    One is callable: rank, place and name give the bound of each element, or None where nothing is
    known to move it. A program with exact values (integers, or sums that a float holds exactly) is
    run twice and no more: its first moved run shows that nothing moves.
    """

    def __init__(self, plan: Plan, limits: Limits, *, wrong: bool) -> None:
        """Run nothing yet; `wrong` is a program that trains a model as no process would alone."""
        self._asked = plan, limits
        self._wrong = wrong
        self._runs: list[Simulation] | None = None

    def __call__(self, rank: int, place: Place | None, key: str) -> Any:
        """Return how far each element of a value may be off, on one rank right after a step.

        `place` is the step's index and iteration, None for the end; `key` a name, or an expression
        that the step's expectation asks about. None where nothing is known to move it.
        """
        if self._runs is None:
            self._runs = self._run()
        return propagate_error([_value(run.ranks[rank], place, key) for run in self._runs])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle nothing: what asks has the plan."""
        return type(None), ()

    def _run(self) -> list[Simulation]:
        """Return the program's run, and those in which reductions are moved; none if none is."""
        plan, limits = self._asked
        runs = []
        for way in (None, *range(WAYS)):
            try:
                runs.append(
                    Simulation(
                        plan,
                        numpy_arrays(limits),
                        semantics=Semantics(),
                        limits=limits,
                        way=way,
                        trained=self._wrong,
                    ).run()
                )
            except BoundError:
                raise  # a bound ends the case
            except ScenarioError:
                return []
            if way == 0 and not runs[-1].moved:
                return []
        return runs


def _value(state: RankState, place: Place | None, key: str) -> Any:
    """Return what a rank held, or saw, right after a step; None where it did not get there."""
    found = state.initial.get(key)
    for event in state.events:
        found = event.writes.get(key, found)
        if place == (event.index, event.iteration):
            return event.observed.get(key, found)
    return found if place is None else None
