"""The traces side by side: what each rank held when, and where expressions are evaluated."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import proxy

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import Clause, Mark, Problem, ScenarioError, make_warning
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE, is_fixed
from torch_scenarios.expressions.functions import NumpyArrays, numpy_arrays
from torch_scenarios.expressions.values import Expression, Form, PerRank, TypedValue, Undefined
from torch_scenarios.limits import Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import (
    Expectation,
    FinalExpectation,
    RaiseSpec,
    Scenario,
    Step,
    Unchanged,
    ValueExpectation,
    steps_of,
)
from torch_scenarios.model.trace import Diagnosis, Event, RankTrace, Trace, Value
from torch_scenarios.model.versions import find_torch_version, release_of
from torch_scenarios.operations.base import Entry, Group, GroupCreation, Operation
from torch_scenarios.operations.placement import (
    decode,
    layout_name,
    normalise,
    placement_of,
)
from torch_scenarios.strategies import Model, Trainee, trainee_of
from torch_scenarios.verdict.comparison import WantedValue
from torch_scenarios.verdict.finding import StatedCost

# -------------------------------------------------------------------------------------------------
# The program order: which of two step instances comes first, on whichever ranks they are.

#: where a step instance stands in the program; compares with any other
Moment = tuple[int, ...]


class ProgramOrder:
    """The order of step instances: by position in the file, and in a loop by its iterations.

    The values of a loop are put in the order in which ranks met them: ascending or descending where
    every rank counts so, else in the order of the first rank that met them.

        for i in 2, 1, 0       (4, (2,))  <  (4, (1,))  <  (4, (0,))  <  (5, ())

    It is what "before" means for two ranks that have no clock in common: what a rank held before a
    step is what its last earlier instance left.
    """

    def __init__(self, steps: tuple[Step, ...], traces: tuple[Trace, ...]) -> None:
        """Learn the loops of the scenario and the values that the traces show for them."""
        self.loops: dict[int, tuple[Step, ...]] = {}
        self.steps: dict[int, Step] = {step.index: step for step in steps_of(steps)}
        self._enclose(steps, ())
        self._traces = traces
        self._learnt: dict[tuple[int, tuple[int, ...]], dict[int, int]] | None = None

    def _enclose(self, steps: tuple[Step, ...], loops: tuple[Step, ...]) -> None:
        for step in steps:
            self.loops[step.index] = loops
            self._enclose(step.body, (*loops, step))

    @property
    def _positions(self) -> dict[tuple[int, tuple[int, ...]], dict[int, int]]:
        """Where the values of each loop stand among each other; learnt when first asked for."""
        if self._learnt is None:
            self._learnt = self._learn() if any(self.loops.values()) else {}
        return self._learnt

    def _learn(self) -> dict[tuple[int, tuple[int, ...]], dict[int, int]]:
        met: dict[tuple[int, tuple[int, ...]], list[dict[int, None]]] = {}
        for trace in self._traces:
            for places in trace.walks():
                own: dict[tuple[int, tuple[int, ...]], dict[int, None]] = {}
                for index, iteration in places:
                    for depth, loop in enumerate(self.loops.get(index, ())):
                        place = (loop.index, iteration[:depth])
                        own.setdefault(place, {})[iteration[depth]] = None
                for place, values in own.items():
                    met.setdefault(place, []).append(values)
        return {place: _merge_orders(orders) for place, orders in met.items()}

    def moment(self, index: int, iteration: tuple[int, ...]) -> Moment:
        """Return the sort key of a step instance."""
        key: list[int] = []
        for depth, loop in enumerate(self.loops.get(index, ())):
            positions = self._positions.get((loop.index, iteration[:depth]), {})
            key += [loop.index, positions.get(iteration[depth], len(positions))]
        return (*key, index)

    def variables(self, event: Event) -> dict[str, int]:
        """Return the loop variables that are known at an event, with their values."""
        loops = self.loops.get(event.index, ())
        return {
            str(loop.variable): value for loop, value in zip(loops, event.iteration, strict=False)
        }


# Two ranks may go through one loop in two orders, or through other turns of it.
#
#     rank 0   for i in 0, 1, 2          rank 1   for i in 2, 0
#
# Which turn is "before" another is then a matter of convention, and must be the same for both
# traces: what a rank held before a step is looked up by it. If every rank counts upwards, up it is;
# else the order of the first rank that met a value counts, which is right for that rank at least.
def _merge_orders(orders: list[dict[int, None]]) -> dict[int, int]:
    everything = dict.fromkeys(value for values in orders for value in values)
    listed = [list(values) for values in orders]
    if all(values == sorted(values) for values in listed):
        ordered = sorted(everything)
    elif all(values == sorted(values, reverse=True) for values in listed):
        ordered = sorted(everything, reverse=True)
    else:
        ordered = list(everything)
    return {value: position for position, value in enumerate(ordered)}


# -------------------------------------------------------------------------------------------------
# What every rank held at any moment of a trace, and expressions evaluated there.
#
# A trace stores only what was written. The memory of a rank at an event is what it held in the
# beginning, with every write up to that event laid over it:
#
#     initial {x: 1, y: 0}   event 0 writes {y: 2}   event 1 writes {x: 3}
#     memory  {x: 1, y: 0}           {x: 1, y: 2}            {x: 3, y: 2}
#
# Moments on different ranks are put in order by the *program order* of step instances, so that
# "before this step" has a meaning on a rank that does not take the step.

T = TypeVar("T")


class UndefinedRead(Exception):
    """An expectation relies on `name`, which an operation left undefined.

    It is no difference: two undefined values are neither equal nor unequal. The finding says which
    operation left it so.
    """

    def __init__(self, name: str, value: Undefined) -> None:
        """Keep what was read."""
        super().__init__(f"{name} is undefined after {value.cause}")
        self.name = name
        self.value = value


def require_defined(process: Process, evaluate: Callable[[], T]) -> T:
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


def _find_names(plan: Plan) -> Iterator[str]:
    """Yield every name that a rank may come to hold."""
    yield from plan.scenario.tensors
    yield from plan.scenario.objects
    for model in plan.scenario.models.values():
        yield from model.values
    for step in steps_of(plan.scenario.steps):
        if step.operation is not None:
            yield from step.operation.introduces(step.arguments)


class Memories:
    """One trace, folded: what each rank held when.

    `fallback` gives the initial values where a trace does not state them.

        events of rank 0     step 0 writes x = 1     step 2 writes x = 3
        before step 2        x = 1                   at the end: x = 3

    A trace has what steps stored and no more: to keep all that a rank holds at each step would be a
    thousand copies of a model.
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
        self._trainees: dict[tuple[int, str], Trainee | None] = {}
        self._creations: dict[int, list[tuple[Event, Group]]] = {}
        self._nothing = dict.fromkeys(_find_names(plan))
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
        initial = self.initial(rank)
        found = self._ranks.get(rank)
        for event, before, after in found.visit(indexes) if found else ():
            yield event, {**initial, **before}, {**initial, **after}

    def final(self, rank: int) -> dict[str, Value]:
        """Return what a rank held in the end, wherever it ended."""
        found = self._ranks.get(rank)
        return {**self.initial(rank), **(found.final() if found else {})}

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

    def after(self, name: str, rank: int, step: Moment | None) -> Value:
        """Return what a rank held in `name` just after a step; None is the end."""
        written, values = self._history(rank, name)
        position = len(written) if step is None else bisect_right(written, step)
        return values[position - 1] if position else self.initial(rank).get(name)

    def trainee(self, rank: int, model: Model) -> Trainee | None:
        """Return a rank's part of a model as it begins; None where it has none."""
        key = (rank, model.name)
        if key not in self._trainees:
            process = self.idle(rank)
            member = not model.where or process.mesh(model.where)
            self._trainees[key] = trainee_of(model, process) if member else None
        return self._trainees[key]

    def _history(self, rank: int, name: str) -> tuple[list[Moment], list[Value]]:
        """Return when a name was written on a rank, and what it held then."""
        if (rank, name) not in self._histories:
            moments: list[Moment] = []
            values: list[Value] = []
            found = self._ranks.get(rank)
            for index, iteration, value in found.changes(name) if found else ():
                moments.append(self.order.moment(index, iteration))
                values.append(value)
            self._histories[rank, name] = moments, values
        return self._histories[rank, name]

    # ------------------------------------------------------------------ evaluation

    def idle(self, rank: int) -> Process:
        """Return a process of `rank` for what depends on nothing that it holds."""
        process = self._processes.get(rank)
        if process is None:
            process = Process(self.plan, rank, self.arrays, initialise=False)
            self._processes[rank] = process
        return process

    def process(
        self, rank: int, memory: Mapping[str, Value], event: Event | None, moment: Moment | None
    ) -> Process:
        """Return a process of `rank` that holds `memory`, at an event (None: outside any step).

        It serves until the next call for the same rank. Its `before(x, r)` looks at `moment`.
        """
        process = self.idle(rank)
        process.scope["before()"] = self._make_before(moment)
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
        for name in self.plan.numbers:
            process.scope.pop(name, None)
        process.scope.update(self._numbers(rank, event))
        if event is not None:
            process.scope.update(self.order.variables(event))
        self._join(process, moment)
        return process

    def _numbers(self, rank: int, event: Event | None) -> Mapping[str, Value]:
        """Return what `let` has named on a rank at an event; None is the end."""
        if event is not None:
            return {
                name: event.observed[name] for name in self.plan.numbers & event.observed.keys()
            }
        found = self._ranks.get(rank)
        return found.numbers if found is not None else {}

    def _make_before(self, moment: Moment | None) -> Callable[[str, Any], Value]:
        me = proxy(self)  # the processes that this holds have the function

        def before(name: str, rank: Any) -> Value:
            value = me.before(name, int(rank), moment)
            if isinstance(value, Undefined):
                raise UndefinedRead(name, value)
            if value is None:
                message = f"rank {int(rank)} holds no {name!r} before this step"
                raise ValueError(message)
            return value

        return before

    def _join(self, process: Process, moment: Moment | None) -> None:
        """Let the process know the groups that its own `new_group` steps made before `moment`."""
        for event, group in self._find_created(process):
            if moment is None or self.order.moment(event.index, event.iteration) <= moment:
                process.join(group)

    def _find_created(self, process: Process) -> list[tuple[Event, Group]]:
        if not self._creates:
            return []
        if process.rank not in self._creations:
            self._creations[process.rank] = list(self._replay(process.rank))
        return self._creations[process.rank]

    def _replay(self, rank: int) -> Iterator[tuple[Event, Group]]:
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
        group = process.group(operation.group_of(process, step.arguments))
        return Entry(
            rank=process.rank, group=group, arguments=operation.evaluate(process, step.arguments)
        )


# -------------------------------------------------------------------------------------------------
# A view of one rank: where keys and wanted values are evaluated.


class RankView(Struct, frozen=True, kw_only=True):
    """One rank of one trace at one step instance: where keys and wanted values are evaluated.

        expect: {x: 2 * x0}       x0 is what the rank held before the step, in the same trace

    An expectation is evaluated once in each trace. What the reference and the run each make of it
    may differ, as where it is computed from a tensor that differs.
    """

    memories: Memories
    rank: int
    event: Event | None
    moment: Moment | None
    before: dict[str, Value]
    after: dict[str, Value]

    def process(self, *, before: bool = False) -> Process:
        """Return the rank's process, holding what it held after (or before) the step."""
        memory = self.before if before else self.after
        return self.memories.process(self.rank, memory, self.event, self.moment)

    def value(self, key: Expression, *, before: bool = False, measured: bool = False) -> Value:
        """Return what the key is here. Raises UndefinedRead where it looks at such a value.

        With `measured` only its shape and dtype count, which are always defined.
        """
        memory = self.before if before else self.after
        if key.text in memory:
            return memory[key.text]
        if not before and self.event is not None and key.text in self.event.observed:
            return self.event.observed[key.text]
        process = self.process(before=before)
        if measured:
            with suppress(ScenarioError):
                return process.evaluate(key)
        return require_defined(process, lambda: process.evaluate(key))

    def find_wanted(self, expectation: ValueExpectation) -> WantedValue | None:
        """Return what the author wants here; None where the rank is asked nothing."""
        form: Any = expectation.wanted
        process = self.memories.idle(self.rank) if is_fixed(form) else self.process()
        while isinstance(form, PerRank):
            form = self._choose(process, form)
            self.memories.chosen.add(id(form))
        if form is None:
            return None
        if isinstance(form, Unchanged):
            value = self.value(expectation.key, before=True)
            return WantedValue(value=value, rtol=0.0, atol=0.0, unchanged=True)
        found = require_defined(process, lambda: _evaluate_wanted(process, form))
        return found if found.local else self._take_part(expectation.key, found)

    def place_of(self, expectation: ValueExpectation, code: str) -> Mark | None:
        """Return the place of what the author wants here and a finding says is not so.

        None where that cannot be told.
        """
        try:
            return self.process().place_of(expectation.wanted, _PARTS.get(code, ("value",)))
        except (ScenarioError, UndefinedRead, *CANNOT_COMPUTE):
            return None

    def _take_part(self, key: Expression, wanted: WantedValue) -> WantedValue:
        """Return what is wanted of the rank's part, where the key is a parameter that is cut."""
        model, parameter = self._parameter(key)
        trainee = None if model is None else self.memories.trainee(self.rank, model)
        if model is None or trainee is None or not model.is_distributed(parameter):
            return wanted
        shape = model.network.shapes()[parameter]
        return replace(wanted, whole=shape, part=partial(trainee.share, parameter))

    def _parameter(self, key: Expression) -> tuple[Model | None, str]:
        """Return the model and the parameter of which a key is the value or the gradient."""
        name, _, value = key.text.strip().partition(".")
        model = self.memories.plan.scenario.models.get(name)
        parameter = value.removesuffix(".grad")
        return (model if model and parameter in model.parameters else None), parameter

    def lies(self, key: Expression) -> tuple[str, ...] | None:
        """Return how the tensor of a name lies on its mesh; None where this trace does not say."""
        model, parameter = self._parameter(key)
        name = model.name if model is not None else key.text.strip()
        codes = self.after.get(layout_name(name))
        if codes is None or isinstance(codes, Undefined):
            return None
        at = 0
        if model is not None:
            at = model.parameters.index(parameter)
            at += len(model.parameters) if key.text.strip().endswith(".grad") else 0
        placements = decode(np.asarray(codes)[at].tolist())
        return None if placements is None else tuple(map(str, placements))

    def _read_rank(self, rank: int, key: Expression) -> Value:
        """Return what another rank holds in a name right after this step."""
        return self.memories.after(key.text.strip(), rank, self.moment)

    def join(self, key: Expression, value: Value) -> Value:
        """Return the whole of a parameter, or of its gradient, of which each rank has a part."""
        model, parameter = self._parameter(key)
        if model is None or not model.is_distributed(parameter) or value is None:
            return value
        shape = model.network.shapes()[parameter]
        numbers = np.arange(int(np.prod(shape))).reshape(shape)
        whole = np.zeros(shape, np.float32)
        for rank in range(self.memories.plan.world_size):
            trainee = self.memories.trainee(rank, model)
            part = self._read_rank(rank, key)
            if trainee is not None and isinstance(part, np.ndarray):
                whole.reshape(-1)[trainee.share(parameter, numbers).reshape(-1)] = part.reshape(-1)
        total = self._sum_addends(key, value)
        return total if total is not value else whole

    def find(self, key: Expression, wanted: WantedValue) -> tuple[WantedValue, Value]:
        """Return what is wanted, and what there is of it: a rank's own part, or the whole.

        Raises UndefinedRead where the key looks at such a value.
        """
        found = self.value(key, measured=not wanted.has_value)
        if wanted.placements is not None:
            listed = normalise(map(placement_of, wanted.placements), np.ndim(found))
            stated = tuple(map(str, listed))
            return replace(wanted, placements=stated, lies=self.lies(key)), found
        return wanted, self._sum_addends(key, found) if wanted.whole is not None else found

    def _sum_addends(self, key: Expression, value: Value) -> Value:
        """Return the whole of a gradient of which each rank has its own addend."""
        model, _ = self._parameter(key)
        lies = self.lies(key) if model is not None else None
        if model is None or not lies or not any(each.startswith("Partial") for each in lies):
            return value
        group = self.memories.idle(self.rank).mesh(model.where or "")[-1]
        parts = [self._read_rank(rank, key) for rank in group.ranks]
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        return sum(arrays[1:], arrays[0]) if len(arrays) == group.size else value

    def _choose(self, process: Process, form: PerRank[Any]) -> Any:
        return require_defined(process, lambda: process.choose(form))


#: what a finding is about -> the keys of a long form that state it
_PARTS = {
    "placements_differ": ("placements",),
    "dtype_differs": ("dtype",),
    "shape_differs": ("shape", "value"),
}


def view_of(side: Side) -> RankView:
    """Return the view right after one step."""
    return RankView(
        memories=side.memories,
        rank=side.rank,
        event=side.event,
        moment=side.moment,
        before=side.before,
        after=side.after,
    )


def view_at_end(memories: Memories, rank: int) -> RankView:
    """Return the view after a rank's last step; before it is the beginning."""
    return RankView(
        memories=memories,
        rank=rank,
        event=None,
        moment=None,
        before=dict(memories.initial(rank)),
        after=memories.final(rank),
    )


def _evaluate_wanted(process: Process, form: Form) -> WantedValue:
    if not isinstance(form, TypedValue):
        return WantedValue(value=process.evaluate(form))
    value = process.evaluate(form.value)
    left_out = value is None and isinstance(form.value, PerRank)
    return WantedValue(
        value=value,
        has_value=value is not None or (form.value is not None and not left_out),
        dtype=process.evaluate(form.dtype),
        shape=process.sizes(form.shape),
        rtol=form.rtol,
        atol=form.atol,
        placements=_placements(process, form),
        local=form.placements is not None,
    )


def _placements(process: Process, form: TypedValue) -> tuple[str, ...] | None:
    """Return placements as an author writes them. Raises ScenarioError where one is not."""
    stated = process.evaluate(form.placements)
    if stated is None:
        return None
    try:
        listed = stated if isinstance(stated, list | tuple) else [stated]
        return tuple(str(placement_of(str(each))) for each in listed)
    except ValueError as error:
        mark = form.placements.mark if form.placements is not None else form.mark
        problem = Problem(code="cannot_compute", message=str(error), mark=mark)
        raise ScenarioError([problem]) from error


# -------------------------------------------------------------------------------------------------
# Which of the author's final expectations are judged, and what each asks of which backend.
#
# What is right does not depend on a backend. An author who states a fault, and how the program
# ends because of it, states how the semantics end it; where a backend is known to end it
# otherwise, the statement holds on this backend of the fault alone, and the rest is asked of the
# forecast.


def sections(
    scenario: Scenario,
    predicted: Trace,
    observed: Trace | None,
    backend: str | None,
    torch: str | None,
) -> list[tuple[Trace, FinalExpectation]]:
    """Return the author's final expectations that are to be judged, each with its prediction.

    With no run, what is stated for every backend and every version of torch is judged, whatever is
    installed; `backend` and `torch` ask for one. Where versions that the file does not tell apart
    come to different ends, the one that is installed is predicted, if the file is meant for it.
    """
    final = scenario.expect
    if backend is not None:
        meant = _versions(scenario, torch, backend)
        versions = {final.find_holding(backend, each): each for each in meant}
        found = []
        for sections, version in versions.items():
            stated = final.on(backend, version)
            forecast = predicted.on(backend, version)
            if not any(final.sections[number].backend for number in sections):
                stated = _merge_stated(stated, predicted, forecast, observed)
            found.append((forecast, stated))
        return found
    everywhere = scenario.backends or ()
    general = not everywhere or any(name not in final.backends for name in everywhere)
    names = [*([None] if general else []), *final.backends]
    holding = {
        (name, final.find_holding(name, each)): (predicted.on(name, each), final.on(name, each))
        for name in names
        for each in _versions(scenario, torch, name)
        if name is None or any(final.sections[at].backend for at in final.find_holding(name, each))
    }
    return list(holding.values()) or [(predicted, final)]


def _versions(scenario: Scenario, torch: str | None, backend: str | None) -> tuple[str | None, ...]:
    """Return the version that is asked for, or one for each set of sections that may hold.

    None is whatever is installed, and on no backend any version.
    """
    if torch is not None:
        return (torch,)
    final, meant = scenario.expect, scenario.torch
    # a version for which the scenario is not meant holds nothing against it
    found = [each for each in final.versions if each and (meant is None or meant.holds(each))]
    if not found:
        return (version_meant(scenario),)
    here = find_torch_version()
    if here is not None and meant is not None and not meant.holds(here):
        here = None
    stated = None if here is None else final.find_holding(backend, here)
    known = (here if final.find_holding(backend, each) == stated else each for each in found)
    return (*known,) if backend else (None, *known)


def version_meant(scenario: Scenario) -> str | None:
    """Return a version of torch that a scenario is meant for; None is what is installed."""
    meant = scenario.torch
    if meant is None:
        return None
    here = find_torch_version()
    edges = [each for each in ("0", *meant.edges()) if meant.holds(each)]
    return None if (here and meant.holds(here)) or not edges else max(edges, key=release_of)


def _merge_stated(
    general: FinalExpectation,
    predicted: Trace,
    forecast: Trace,
    observed: Trace | None,
) -> FinalExpectation:
    """Return what the author's words for every backend ask of one about which they say nothing.

    `predicted` is what the semantics make of the program, `forecast` what the backend does.
    """
    wrong = bool(predicted.diagnoses) and predicted.outcome in general.ends
    ends = forecast.outcome if observed is None else observed.outcome
    if forecast is predicted or not wrong or ends not in {forecast.outcome, *forecast.open}:
        return general
    if ends in general.ends:
        unsure = {*forecast.open} - {*predicted.open}
        moved = bool(unsure) or _stands(forecast) != _stands(predicted)
        return replace(general, blocked=None) if moved else general
    return replace(
        general,
        outcomes=(ends,),
        blocked=None,
        dies=None,
        within_s=None,
        at_end=Expectation(),
    )


def _stands(trace: Trace) -> list[tuple[str, int]]:
    """Return how each rank ends, and at which step."""
    return [
        (rank.ending, rank.events[-1].index if len(rank.events) else -1) for rank in trace.ranks
    ]


# -------------------------------------------------------------------------------------------------
# One case before the judge: the three witnesses side by side, aligned rank by rank.

#: states in which what stands beside the step is asked
RETURNED = frozenset({"done", "raised"})


class Side(Struct, frozen=True, kw_only=True):
    """One event of one trace, with what the rank held before and after it.

    `unchanged` compares the two, within one trace: a tensor that both witnesses hold alike may have
    been changed by both.
    """

    memories: Memories
    rank: int
    event: Event
    before: dict[str, Value]
    after: dict[str, Value]

    @property
    def returned(self) -> bool:
        """Whether the step returned or raised: it was not left blocked."""
        return self.event.state in RETURNED

    @property
    def moment(self) -> Moment:
        """Where the event stands in the program."""
        return self.memories.order.moment(self.event.index, self.event.iteration)


class StepInstance(Struct, frozen=True, kw_only=True):
    """One step taken by one rank, as the reference and the run have it; one may be missing.

    predicted    step 3 on rank 1, returned
    observed     none: the run ended before      a finding: the run is alone
    """

    rank: int
    step: Step
    predicted: Side | None
    observed: Side | None

    @property
    def event(self) -> Event:
        """The event, from whichever trace has it."""
        side = self.predicted or self.observed
        assert side is not None
        return side.event


#: (a scenario, the bounds) -> every case of its file, as it is written
CasesOf: TypeAlias = Callable[[Scenario, Limits], Sequence[Scenario]]


class Case(Struct, kw_only=True):
    """The witnesses. `final` is what the author states for the end, on this backend.

    What a backend's own section states about values, or as an error or a crash, is a fact about
    that backend (an ability it lacks, a fault it has): only the run can contradict it.

    `general` is what the semantics make of the program on any backend: the prediction, unless the
    backend at hand is known to make something else of it.

    `taken` is the prediction for the order of arrival that the run took, where there are several.
    `reference` False switches the reference's own opinion off: only author and run are compared.
    `cases_of` gives every case of a scenario's file as it is written; None where that is not known.
    `relied` collects what the judge learns on the way: which undefined values the author relies on.
    """

    scenario: Scenario
    final: FinalExpectation
    order: ProgramOrder
    predicted: Memories
    observed: Memories | None
    general: Trace
    taken: Memories | None = None
    reference: bool = True
    limits: Limits | None = None
    cases_of: CasesOf | None = None
    relied: list[Diagnosis] = field(default_factory=list)
    compared: int = 0
    notes: list[str] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    costs: list[StatedCost] = field(default_factory=list)

    def warn(self, code: str, message: str, mark: Mark | None, hint: str | None = None) -> None:
        """Add a warning: it changes no verdict, and a person should look at it."""
        self.warnings.append(make_warning(code, message, mark, hint))

    @property
    def prediction(self) -> Trace:
        """The predicted trace."""
        return self.predicted.trace

    @property
    def run(self) -> Trace | None:
        """The observed trace; None where nothing ran."""
        return self.observed.trace if self.observed else None

    @property
    def open(self) -> frozenset[str]:
        """The outcomes that a run may show in place of the predicted one.

        Where a backend was known to do otherwise, it may do what the semantics say as well.
        """
        opened = {*self.prediction.open, *self.general.open, self.general.outcome}
        return frozenset(opened - {self.prediction.outcome})

    @property
    def own_section(self) -> bool:
        """Whether the author has a section for this backend."""
        return self.final is not self.scenario.expect

    def own_value(self, expectation: ValueExpectation) -> bool:
        """Return whether a final value is stated for this backend alone."""
        return self.own_section and expectation not in self.scenario.expect.at_end.values

    @property
    def own_names(self) -> frozenset[str]:
        """The tensors about which this backend's section states values."""
        if not self.own_section:
            return frozenset()
        own = (value for value in self.final.at_end.values if self.own_value(value))
        return frozenset().union(*(value.key.names for value in own))

    @property
    def own_outcome(self) -> bool:
        """Whether the stated outcome depends on what the backend can do, not on the semantics."""
        ends = set(self.final.ends)
        if "error" in ends and "unsupported" in _kinds(self.final.at_end.raises):
            return True
        own = self.own_section and ends != {*self.scenario.expect.ends}
        return own and bool(ends & {"error", "crash", "deadlock"})

    def forgives(self, value: Undefined) -> bool:
        """Return whether the author states why a value is undefined, so that only the run is asked.

        A value that is undefined without any mismatch (off a reduce's destination) is relied on
        under the diagnosis `undefined_read`.
        """
        return (value.diagnosis or "undefined_read") in self.final.diagnoses

    def rely(self, value: Undefined, prose: str, rank: int, event: Event | None) -> None:
        """Note that an expectation relies on a value that is undefined without any mismatch."""
        if value.diagnosis is None:
            self.relied.append(
                Diagnosis(
                    name="undefined_read",
                    clauses=(Clause(prose),),
                    index=event.index if event else -1,
                    iteration=event.iteration if event else (),
                    ranks=(rank,),
                )
            )

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What is wrong with the program, and with what the author relies on: one for each step."""
        found = list(self.prediction.diagnoses)
        number = max((each.finding for each in found), default=-1)
        together: dict[int, list[Diagnosis]] = {}
        for each in self.relied:
            together.setdefault(each.index, []).append(each)
        known = {each.index for each in found if each.name == "undefined_read"}
        own = [
            replace(same[0], ranks=tuple(sorted({rank for each in same for rank in each.ranks})))
            for index, same in sorted(together.items())
            if index not in known
        ]
        numbered = (replace(each, finding=number + at) for at, each in enumerate(own, start=1))
        return (*found, *numbered)

    @property
    def orders(self) -> Sequence[Trace]:
        """The outcome of each order of arrival; empty where there is one, or the author alone."""
        return self.prediction.orders if self.reference else ()

    def instances(
        self, states: Callable[[Expectation], bool] = lambda _: True
    ) -> Iterator[StepInstance]:
        """Yield every step beside which something is expected, on each rank that took it.

        `states` chooses among the expectations: what ranks held is folded for those steps alone.
        """
        indexes = frozenset(
            step.index
            for step in self.order.steps.values()
            if step.expect is not None and states(step.expect)
        )
        if not indexes:
            return
        for rank in range(self.scenario.world_size):
            predicted = _index_sides(self.predicted, rank, indexes)
            observed = _index_sides(self.observed, rank, indexes) if self.observed else {}
            for key in dict.fromkeys((*predicted, *observed)):
                yield StepInstance(
                    rank=rank,
                    step=self.order.steps[key[0]],
                    predicted=predicted.get(key),
                    observed=observed.get(key),
                )


def _kinds(raises: PerRank[RaiseSpec] | RaiseSpec | None) -> set[str]:
    """Return every kind that is stated for any rank."""
    if raises is None:
        return set()
    if isinstance(raises, RaiseSpec):
        return set(raises.kinds)
    specs = [spec for _, spec in raises.branches]
    return {kind for spec in (*specs, raises.otherwise) if spec for kind in spec.kinds}


def _index_sides(memories: Memories, rank: int, indexes: frozenset[int]) -> dict[Occurrence, Side]:
    nth = Occurrences()
    return {
        nth(event): Side(memories=memories, rank=rank, event=event, before=before, after=after)
        for event, before, after in memories.fold(rank, indexes)
    }


#: step index, values of the loop variables, and which of equal ones
Occurrence: TypeAlias = tuple[int, tuple[int, ...], int]


class Occurrences:
    """Names a rank's events one after the other, so that equal loop values stay apart.

    for i in [1, 1]        (2, (1,), 0) and (2, (1,), 1)
    """

    def __init__(self) -> None:
        """Begin before the first event."""
        self._counts: dict[tuple[int, tuple[int, ...]], int] = {}

    def __call__(self, event: Event) -> Occurrence:
        """Return the name of the next event."""
        name = (event.index, event.iteration)
        nth = self._counts.get(name, -1) + 1
        self._counts[name] = nth
        return (*name, nth)


def start(
    plan: Plan,
    predicted: Trace,
    observed: Trace | None,
    final: FinalExpectation,
    *,
    reference: bool,
    general: Trace | None = None,
    taken: Trace | None = None,
    limits: Limits | None = None,
) -> Case:
    """Lay the witnesses side by side; `general` is `predicted` where it is left out.

    `taken` is what is predicted of the order of arrival that the run took.
    """
    traces = (predicted,) if observed is None else (predicted, observed)
    order = ProgramOrder(plan.scenario.steps, traces)
    arrays = numpy_arrays(limits) if limits else numpy_arrays()
    expected = Memories(plan, predicted, order, arrays)
    return Case(
        scenario=plan.scenario,
        final=final,
        order=order,
        predicted=expected,
        observed=None if observed is None else Memories(plan, observed, order, arrays, expected),
        general=predicted if general is None else general,
        taken=None if taken is None else Memories(plan, taken, order, arrays),
        reference=reference,
        limits=limits,
    )
