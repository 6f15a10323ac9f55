"""What one backend makes of a program: it is read once more, with the facts of the backend.

What is right does not depend on a backend, and nothing here makes a wrong program right. A program
that relies on what the semantics leave open, or that a backend's streams bring to a halt, comes to
something else there; the forecast says to what, and because of which fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.collector import uncollected
from runner.forms import Constant
from runner.language.budget import BoundError
from runner.language.functions import numpy_arrays
from runner.operations.base import GroupCreation, PointToPoint
from runner.problems import ScenarioError
from runner.reference import causes
from runner.reference.connecting import hosts_of
from runner.reference.diagnosing import diagnosed
from runner.reference.hazards import disputes, may_stand
from runner.reference.ranks import rank_trace
from runner.reference.reading import readings_of
from runner.reference.schedules import rest, same
from runner.scenario import steps_of
from runner.trace import Trace
from runner.traits import TRAITS, traits_of
from runner.vocabulary import OUTCOMES

if TYPE_CHECKING:
    from runner.language.limits import Limits
    from runner.plan import Plan
    from runner.reference.connecting import Hosts
    from runner.reference.schedules import Rest
    from runner.scenario import Step


class Forecasts(Mapping[str, Trace]):
    """The forecasts of every known backend on which a program comes to something else.

    One is made when it is first asked for: most programs are never run there.
    """

    def __init__(self, plan: Plan, predicted: Trace, limits: Limits) -> None:
        """Compute nothing yet."""
        self._asked = (plan, predicted, limits)
        self._made: dict[str, Trace | None] = {}

    def __getitem__(self, backend: str) -> Trace:
        """Return the forecast of a backend; KeyError where it comes to the same."""
        if backend not in self._made:
            plan, predicted, limits = self._asked
            self._made[backend] = forecast(plan, predicted, backend, limits)
        found = self._made[backend]
        if found is None:
            raise KeyError(backend)
        return found

    def __iter__(self) -> Iterator[str]:
        """Yield the backends on which it comes to something else."""
        return (backend for backend in sorted(TRAITS) if self._has(backend))

    def _has(self, backend: str) -> bool:
        try:
            return self[backend] is not None
        except KeyError:
            return False

    def __len__(self) -> int:
        """Return on how many backends it comes to something else."""
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was asked for alone."""
        return dict, ({name: trace for name, trace in self._made.items() if trace is not None},)


@uncollected()
def forecast(plan: Plan, predicted: Trace, backend: str, limits: Limits) -> Trace | None:
    """Return what a backend makes of a program; None where it is what is predicted anyway.

    Nothing is known of programs that raise, die, or receive from anyone where a backend cannot.
    """
    traits = traits_of(backend)
    if predicted.outcome not in {"completes", "deadlock"} or not _concerned(plan, backend):
        return None
    sure, most, ordered = readings_of(backend, traits)
    arrays = numpy_arrays(limits)
    try:
        main = rest(plan, arrays, sure, limits=limits)
        if main.simulation.mailbox.from_anyone and not traits.any_source:
            return None
        hosts = hosts_of(main, traits) if traits.connects_late else None
        if hosts is not None and hosts.standing:
            sure, most, ordered = (
                replace(each, standing=hosts.standing) for each in (sure, most, ordered)
            )
            main = rest(plan, arrays, sure, limits=limits)
        if main.outcome != "completes" and traits.splits_world and disputes(main):
            return None  # of a group that is smaller than its ranks believe nothing is known
        # a larger buffer stops nobody, and the order of groups is one where there is one group
        others = [most] if main.outcome == "deadlock" else []
        others += [ordered] if _several_groups(plan) else []
        runs = [rest(plan, arrays, each, limits=limits) for each in others]
    except BoundError:
        raise  # a bound ends the case
    except ScenarioError:
        return None  # a value that its ranks never hold there
    made = _trace(predicted, main, runs, hosts)
    return None if _alike(predicted, made) else replace(made, backend=backend)


def _concerned(plan: Plan, backend: str) -> bool:
    """Whether the program has anything that the backend may take in its own way.

    Messages, new groups, and calls of several groups that run at once; collectives that ranks wait
    for one by one are the same everywhere.
    """
    traits = traits_of(backend)
    if not (traits.enqueues or traits.held_bytes or not traits.tags):
        return False
    steps = list(steps_of(plan.scenario.steps))
    if any(isinstance(step.operation, PointToPoint) for step in steps):
        return True
    if traits.splits_world and any(isinstance(step.operation, GroupCreation) for step in steps):
        return True
    return _several_groups(plan) and any(_asynchronous(step) for step in steps)


def _several_groups(plan: Plan) -> bool:
    steps = steps_of(plan.scenario.steps)
    return len(plan.names) > 1 or any(isinstance(step.operation, GroupCreation) for step in steps)


def _asynchronous(step: Step) -> bool:
    stated = step.arguments.get("async_op")
    plain = stated is None or (isinstance(stated, Constant) and not stated.value)
    return step.operation is not None and (step.operation.asynchronous or not plain)


def _trace(predicted: Trace, main: Rest, others: list[Rest], hosts: Hosts | None) -> Trace:
    opened = set(main.simulation.opened) | {run.outcome for run in others}
    if hosts is not None and hosts.garbled:
        opened |= set(OUTCOMES)
        if predicted.outcome == "completes":
            # that the hosts of two ranks get over it is luck: with a third rank they stand for good
            opened.discard("completes")
    may_block = may_stand([main, *others], None)
    if any(may_block.values()):
        opened.add("deadlock")
    own = diagnosed(main.findings, main.needs)
    known = {diagnosis.name for diagnosis in predicted.diagnoses}
    beside = tuple(
        replace(each, optional=True, finding=len(predicted.diagnoses) + each.finding)
        for each in own
        if each.name not in known
    )
    return Trace(
        backend="reference",
        outcome=main.outcome,
        open=tuple(sorted(opened - {main.outcome})),
        ranks=tuple(
            rank_trace(
                state.rank,
                [main, *others],
                state.events,
                may_block.get(state.rank, set()).union(mine.may_block),
            )
            for state, mine in zip(main.simulation.ranks, predicted.ranks, strict=True)
        ),
        diagnoses=(*predicted.diagnoses, *beside),
        waits=tuple(edge.wait() for need in main.needs for edge in need.edges()),
        duration_s=max((state.clock_s for state in main.simulation.ranks), default=0.0),
        because=causes.told(main, others, hosts),
    )


def _alike(predicted: Trace, made: Trace) -> bool:
    """Whether a forecast says nothing that the prediction does not."""
    if (made.outcome, set(made.open) <= set(predicted.open)) != (predicted.outcome, True):
        return False
    for mine, theirs in zip(predicted.ranks, made.ranks, strict=True):
        if mine.ending != theirs.ending or len(mine.events) != len(theirs.events):
            return False
        for event, other in zip(mine.events, theirs.events, strict=True):
            if event.state != other.state or event.writes.keys() != other.writes.keys():
                return False
            if not all(same(value, other.writes[name]) for name, value in event.writes.items()):
                return False
    return True
