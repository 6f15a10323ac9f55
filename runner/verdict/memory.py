"""What every rank held at any moment of a trace, and expressions evaluated there.

A trace stores only what was written. The memory of a rank at an event is what it held in the
beginning, with every write up to that event laid over it:

    initial {x: 1, y: 0}   event 0 writes {y: 2}   event 1 writes {x: 3}
    memory  {x: 1, y: 0}           {x: 1, y: 2}            {x: 3, y: 2}

Moments on different ranks are put in order by the *program order* of step instances, so that
"before this step" has a meaning on a rank that does not take the step.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeVar

from runner.operations.base import GroupCreation, Operation
from runner.operations.entries import Entry, Undefined
from runner.problems import ScenarioError
from runner.program import Process
from runner.scenario import steps_of
from runner.trace import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runner.language.functions import NumpyArrays
    from runner.plan import Group, Plan
    from runner.scenario import Step
    from runner.trace import Event, RankTrace, Trace, Value
    from runner.verdict.order import Moment, ProgramOrder

T = TypeVar("T")


class UndefinedRead(Exception):  # noqa: N818 -- a finding about the scenario
    """An expectation relies on `name`, which an operation left undefined."""

    def __init__(self, name: str, value: Undefined) -> None:
        """Keep what was read."""
        super().__init__(f"{name} is undefined after {value.cause}")
        self.name = name
        self.value = value


def defined(process: Process, evaluate: Callable[[], T]) -> T:
    """Return what `evaluate` returns. Raises UndefinedRead where it looked at such a value."""
    process.undefined_reads.clear()
    try:
        value = evaluate()
    except ScenarioError:
        if not process.undefined_reads:
            raise
    else:
        if not process.undefined_reads:
            return value
    raise UndefinedRead(*process.undefined_reads[0])


def _held_names(plan: Plan) -> Iterator[str]:
    """Yield every name that a rank may come to hold."""
    yield from plan.scenario.tensors
    yield from plan.scenario.objects
    for step in steps_of(plan.scenario.steps):
        if step.operation is not None:
            yield from step.operation.introduces(step)


class Memories:
    """One trace, folded: what each rank held when.

    `fallback` gives the initial values where a trace does not state them.
    """

    def __init__(
        self,
        plan: Plan,
        trace: Trace,
        order: ProgramOrder,
        arrays: NumpyArrays,
        fallback: Memories | None = None,
    ) -> None:
        """Keep the trace; nothing is folded before it is asked for."""
        self.plan = plan
        self.trace = trace
        self.order = order
        self.arrays = arrays
        self._fallback = fallback
        #: identities of the branches of mappings by rank that some rank chose in an expectation
        self.chosen: set[int] = set()
        self._ranks = {rank.rank: rank for rank in trace.ranks}
        self._histories: dict[tuple[int, str], tuple[list[Moment], list[Value]]] = {}
        self._processes: dict[int, Process] = {}
        self._creations: dict[int, list[tuple[Event, Group]]] = {}
        self._nothing = dict.fromkeys(_held_names(plan))
        self._creates = any(
            isinstance(step.operation, GroupCreation) for step in order.steps.values()
        )

    def rank(self, rank: int) -> RankTrace | None:
        """Return what one rank did; None where the trace has no such rank."""
        return self._ranks.get(rank)

    def initial(self, rank: int) -> Mapping[str, Value]:
        """Return what a rank held before step 1."""
        found = self._ranks.get(rank)
        if self._fallback is None:
            return found.initial if found else {}
        return {**self._fallback.initial(rank), **(found.initial if found else {})}

    def fold(
        self, rank: int, indexes: frozenset[int]
    ) -> Iterator[tuple[Event, dict[str, Value], dict[str, Value]]]:
        """Yield a rank's events at the steps `indexes` with what it held before and after each."""
        memory = dict(self.initial(rank))
        found = self._ranks.get(rank)
        if found is not None and isinstance(found.events, Recorded):
            yield from found.events.beside(indexes)
            return
        for event in found.events if found else ():
            if event.index in indexes:
                before = dict(memory)
                memory.update(event.writes)
                yield event, before, dict(memory)
            else:
                memory.update(event.writes)

    def final(self, rank: int) -> dict[str, Value]:
        """Return what a rank held in the end, wherever it ended."""
        memory = dict(self.initial(rank))
        found = self._ranks.get(rank)
        if found is not None and isinstance(found.events, Recorded):
            return {**memory, **found.events.final()}
        for event in found.events if found else ():
            memory.update(event.writes)
        return memory

    def before(self, name: str, rank: int, moment: Moment | None) -> Value:
        """Return what a rank held in `name` just before a moment; None is the beginning."""
        if not 0 <= rank < self.plan.world_size:
            message = f"before({name}, {rank}): the world has ranks 0 to {self.plan.world_size - 1}"
            raise ValueError(message)
        if moment is not None:
            moments, values = self._history(rank, name)
            position = bisect_left(moments, moment)
            if position:
                return values[position - 1]
        return self.initial(rank).get(name)

    def _history(self, rank: int, name: str) -> tuple[list[Moment], list[Value]]:
        """Return when a name was written on a rank, and what it held then."""
        if (rank, name) not in self._histories:
            moments: list[Moment] = []
            values: list[Value] = []
            for index, iteration, value in self._changes(rank, name):
                moments.append(self.order.moment(index, iteration))
                values.append(value)
            self._histories[rank, name] = moments, values
        return self._histories[rank, name]

    def _changes(self, rank: int, name: str) -> Iterator[tuple[int, tuple[int, ...], Value]]:
        found = self._ranks.get(rank)
        events = found.events if found else ()
        if isinstance(events, Recorded):
            yield from events.changes(name)
            return
        for event in events:
            if name in event.writes:
                yield event.index, event.iteration, event.writes[name]

    # ------------------------------------------------------------------ evaluation

    def process(
        self, rank: int, memory: Mapping[str, Value], event: Event | None, moment: Moment | None
    ) -> Process:
        """Return a process of `rank` that holds `memory`, at an event (None: outside any step).

        It serves until the next call for the same rank. Its `before(x, r)` looks at `moment`.
        """
        process = self._processes.get(rank)
        if process is None:
            process = Process(self.plan, rank, self.arrays, initialise=False)
            self._processes[rank] = process
        process.scope["before()"] = self._before_function(moment)
        process.held.clear()
        process.undefined.clear()
        process.scope.update(self._nothing)
        for name, value in memory.items():
            process.scope[name] = value
            if isinstance(value, Undefined):
                process.undefined[name] = value
                process.scope[name] = value.measure
            elif value is not None:
                process.held.add(name)
        if event is not None:
            process.scope.update(self.order.variables(event))
        self._join(process, moment)
        return process

    def _before_function(self, moment: Moment | None) -> Callable[[str, Any], Value]:
        def before(name: str, rank: Any) -> Value:  # noqa: ANN401 -- an array of one element, too
            value = self.before(name, int(rank), moment)
            if isinstance(value, Undefined):
                raise UndefinedRead(name, value)
            if value is None:
                message = f"rank {int(rank)} holds no {name!r} before this step"
                raise ValueError(message)
            return value

        return before

    def _join(self, process: Process, moment: Moment | None) -> None:
        """Let the process know the groups that its own `new_group` steps made before `moment`."""
        for event, group in self._created(process):
            if moment is None or self.order.moment(event.index, event.iteration) <= moment:
                process.join(group)

    def _created(self, process: Process) -> list[tuple[Event, Group]]:
        if not self._creates:
            return []
        if process.rank not in self._creations:
            self._creations[process.rank] = list(self._replayed(process.rank))
        return self._creations[process.rank]

    def _replayed(self, rank: int) -> Iterator[tuple[Event, Group]]:
        """Yield the groups that a rank created, from what it held when it created them."""
        creates = {
            index: (step, step.operation)
            for index, step in self.order.steps.items()
            if isinstance(step.operation, GroupCreation)
        }
        process = Process(self.plan, rank, self.arrays, initialise=False)
        for event, held, _ in self.fold(rank, frozenset(creates)):
            if event.state != "done":
                continue
            process.scope.update(self._nothing)
            process.scope.update(held)
            process.scope.update(self.order.variables(event))
            step, operation = creates[event.index]
            entry = self.entry(process, operation, step)
            group = operation.group(entry, self.plan.scenario.timeout_s)
            process.join(group)
            yield event, group

    def entry(self, process: Process, operation: Operation, step: Step) -> Entry:
        """Return the entry of a rank into a step, its arguments evaluated in `process`."""
        group = process.group(operation.group_of(process, step))
        return Entry(rank=process.rank, group=group, arguments=operation.evaluate(process, step))
