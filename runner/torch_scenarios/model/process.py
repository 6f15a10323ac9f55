"""One rank's view of a plan: membership, names, calls, and what stays the same between rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from weakref import proxy

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import DataError, Mark, Problem, ScenarioError
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.evaluator import (
    CANNOT_COMPUTE,
    TypedEvaluator,
    cannot_compute,
    no_number,
    no_part,
    numbers,
    refuse_store,
    take_integer,
)
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import (
    DEFAULT_DTYPE,
    Constant,
    Expression,
    Form,
    ListForm,
    PerRank,
    Record,
    Undefined,
    names_of,
    roots_of,
)
from torch_scenarios.model.plan import Plan, PreparedCall, prepare
from torch_scenarios.model.scenario import Function, Step, steps_of
from torch_scenarios.operations.base import (
    Compound,
    Entry,
    Group,
    GroupCreation,
    IssuedCall,
    Local,
    Operation,
    Part,
    RefusedError,
    dtype_name,
)
from torch_scenarios.strategies import Model, trainee_of
from torch_scenarios.strategies.model import WeightError
from torch_scenarios.vocabulary import WORLD

# -------------------------------------------------------------------------------------------------
# Which groups one rank is in: those of the plan, those made and given up while it runs.


class Membership(TypedEvaluator):
    """An evaluator that knows its rank's groups, and answers what expressions ask of them.

    A name means another group on each rank, or none: with `partition: [[0, 1], [2, 3]]` the name
    `pair` is (0, 1) on rank 0 and (2, 3) on rank 3, as in a script each rank keeps its own return
    value of `new_subgroups_by_enumeration`. Outside of a group a rank has -1, its size is 0, and it
    has no ranks (decision 2): torch returns -1 from `get_rank(group)` there too.
    """

    def __init__(self, plan: Plan, rank: int, arrays: Arrays) -> None:
        """Begin in no group: :meth:`enter` enters those of the plan."""
        super().__init__(rank, arrays)
        self.plan = plan
        self.selected = plan.selected
        self.groups: dict[str, Group] = {}
        #: the names of the groups that this rank gave up, and the step that did it
        self.destroyed: dict[str, Mark | None] = {}
        #: the keys of the groups that this rank is in and has not destroyed, whatever their names
        #: mean now
        self.alive: set[str] = set()
        #: counts the changes of both: what was found out about a group holds until the next
        self.regrouped = 0
        #: the place of the step that this rank is at
        self._at: Mark | None = None
        #: what it knows of distributed tensors, by the names that hold their local part
        self.layouts: dict[str, Any] = {}

    def enter(self) -> None:
        """Enter the groups of the plan that this rank is in, and name them all in the scope."""
        for name in self.plan.names:
            group = self.plan.group(name, self.rank)
            if group is not None:
                self.groups[name] = group
                self.alive.add(group.key)
            self.scope[name] = group.listed if group else []

    def group(self, name: str | None) -> Group:
        """Return the group that a name means here; a group of others where this rank has none."""
        name = WORLD if name is None else name
        if name in self.groups:
            return self.groups[name]
        others = self.plan.names.get(name, ())
        if others:
            return others[0]
        return Group(key=name, name=name, ranks=(), timeout_s=self.plan.scenario.timeout_s)

    def mesh(self, name: str) -> tuple[Group, ...]:
        """Return this rank's group along each dimension of a device mesh; empty outside of it."""
        return tuple(self.groups[each] for each in self._dims(name) if each in self.groups)

    def members(self, model: str) -> Group:
        """Return the group of all ranks that have a part of a model.

        Raises ScenarioError where no group has them and no other: a part of the world.
        """
        where, world = self.plan.scenario.models[model].where, self.group(WORLD)
        dims = self._dims(where) if where else [WORLD]
        ranks = tuple(
            rank for rank in world.ranks if any(self.plan.group(each, rank) for each in dims)
        )
        if ranks == world.ranks:
            return world
        for groups in self.plan.names.values():
            for group in groups:
                if group.ranks == ranks:
                    return group
        message = f"no group has the ranks {list(ranks)} that have a part of `{model}`"
        hint = "make one in `groups:`: a checkpoint is written by the ranks of one group"
        problem = Problem(code="cannot_compute", message=message, mark=self._at, hint=hint)
        raise ScenarioError([problem])

    def is_outside_of_a_mesh(self) -> bool:
        """Return whether there is a device mesh of which this rank is no member."""
        meshes = [each.spec.name for each in self.plan.creations if each.spec.dims]
        return any(not self.mesh(name) for name in meshes)

    def _dims(self, name: str) -> list[str]:
        """Return the names of the groups along the dimensions of a mesh; one where it is one."""
        for creation in self.plan.creations:
            if creation.spec.name == name:
                return [f"{name}.{dim}" for dim in creation.spec.dims] or [name]
        return [name]

    def join(self, group: Group) -> None:
        """Learn a group that was created while the program ran; its name means no other now."""
        self.regrouped += 1
        self.groups.pop(group.name, None)
        self.destroyed.pop(group.name, None)
        self.scope[group.name] = []
        if self.rank in group.ranks:
            self.groups[group.name] = group
            self.alive.add(group.key)
            self.scope[group.name] = list(group.ranks)

    def destroy(self, name: str) -> None:
        """Give a group up, or with the world every group: its members keep a handle of no use."""
        self.regrouped += 1
        for given_up in list(self.groups) if name == WORLD else [name]:
            if given_up in self.groups:
                self.destroyed[given_up] = self._at
                self.alive.discard(self.groups[given_up].key)
        if name == WORLD:
            self.alive.clear()

    def group_rank(self, name: str) -> int:
        """Return `group_rank(name)`: -1 outside."""
        self._require_alive(name)
        return self.group(name).group_rank(self.rank)

    def group_size(self, name: str) -> int:
        """Return `group_size(name)`: 0 outside."""
        self._require_alive(name)
        return self.group(name).size if name in self.groups else 0

    def group_ranks(self, name: str) -> list[int]:
        """Return `group_ranks(name)`: global ranks in group order; empty outside."""
        self._require_alive(name)
        return list(self.groups[name].ranks) if name in self.groups else []

    def _require_alive(self, name: str) -> None:
        """Raise ValueError, as torch does, where this rank is asked about a group it destroyed."""
        if name in self.destroyed:
            message = f"rank {self.rank} destroyed the group {name}"
            raise ValueError(message)


# -------------------------------------------------------------------------------------------------
# A call: one step as one rank takes it, its arguments evaluated.


class Call(Struct, frozen=True, kw_only=True):
    """One step taken by one rank, its arguments evaluated.

    `iteration` holds the values of the enclosing loop variables, outermost first; with
    `step.index` it names the instance of the step, the same on every rank. `roots` maps an
    argument to the names of the held tensors whose storage it may share. `operation` is None for
    a step that is an `expect` alone.
    """

    step: Step
    iteration: tuple[int, ...]
    operation: Operation | None
    entry: Entry
    roots: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: the name under which its work is waited for
    handle: str | None = None
    #: the place of its step; where each rank was recorded at its own, with that of this rank
    mark: Mark | None = None
    #: of one call among those of a compound operation: the label of the whole
    whole: str | None = None

    @property
    def label(self) -> str:
        """The name that reports and `blocked:` use: the step's own, else the operation's."""
        if self.step.name is not None:
            return self.step.name
        if self.whole is not None:
            return self.whole
        return self.operation.label(self.entry) if self.operation else "expect"

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the held tensors that this call may store into, sorted."""
        if self.operation is None:
            return ()
        introduced = self.operation.introduces(self.step.arguments)
        if not any(self.roots.values()):
            return tuple(sorted(set(introduced)))
        stored = self.operation.find_written(self.entry, self.roots)
        return tuple(sorted(stored.union(introduced)))

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the held tensors that this call looks at, sorted."""
        if self.operation is None:
            return ()
        return tuple(sorted(self.operation.read(self.entry, self.roots)))

    @property
    def asynchronous(self) -> bool:
        """Whether the call returns before its work is complete."""
        if self.operation is None:
            return False
        return self.operation.asynchronous or bool(self.entry.arguments.get("async_op"))


class UpcomingStep(Call, frozen=True, kw_only=True):
    """A step that its rank is about to take: nothing of it is evaluated yet.

    The walker of a rank yields it where a function of another rank may run just before the step.
    Were the arguments evaluated by then, they would be what the tensors held before the function.
    """


# -------------------------------------------------------------------------------------------------
# One rank's program: the plan projected onto a rank, step by step, arguments evaluated.
#
# Both executors drive the same :class:`Process`, the reference one for every rank on NumPy, the
# worker one on torch; only the array library they hand in differs. A process evaluates and
# remembers; it communicates nothing, and it learns nothing of other ranks.


def read_issued(part: Part) -> tuple[IssuedCall, ...]:
    """Return what a call says: the larger of its tensors; nothing where it has none."""
    arrays = [each for each in part.arguments.values() if hasattr(each, "dtype")]
    if not arrays:
        return ()
    largest = max(arrays, key=lambda each: int(each.size))
    name, dtype = part.operation.kind, dtype_name(largest.dtype)
    return (IssuedCall(group=part.group.name, call=name, dtype=dtype, numel=int(largest.size)),)


class ValueCounter(Protocol):
    """What counts the values that a process holds and the turns of its loops, and may refuse.

    :class:`torch_scenarios.reference.state.Ledger` is one. A worker has none: what a real rank
    holds is bounded by its machine, and the analysis has bounded the program before.
    """

    def begin(self, mark: Mark | None) -> None:
        """Take note of the place of what is computed next."""

    def keep(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Count copies of values before they are made."""

    def turn(self, step: Step) -> None:
        """Count a turn of a loop."""

    def pass_by(self, step: Step) -> None:
        """Count a step that the rank does not take."""


class StoreObserver(Protocol):
    """What hears of each store into a part of a tensor.

    isend x[0:2] to 1      work uses x[0:2]
    x[1] = 5               called with `done=False`: the part shares an element, `buffer_race`
                           called with `done=True`: the part is defined, whatever it was before
    """

    def __call__(self, name: str, part: Any, cause: Undefined | None, *, done: bool) -> None:
        """Note a store into a part of what `name` holds, before it and when it is done.

        `cause` says why what is stored is undefined, if it is.
        """


def _holds_arrays(arrays: Arrays, value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        arrays.is_array(item) or _holds_arrays(arrays, item) for item in value
    )


def wrong_weight(error: WeightError) -> Problem:
    """Return the problem of a weight that is stated with another shape."""
    hint = "a Linear's weight is [out_features, in_features]"
    return Problem(code="bad_model", message=str(error), mark=error.mark, hint=hint)


class Process(Membership):
    """The state of one rank: what it holds, which groups it knows, where it is.

    Both executors drive the same class, the reference one for every rank on NumPy, the worker one
    on torch. So the two cannot read a program in two ways: which step comes next, who is selected,
    what an argument is worth and where a result goes has one implementation. What they do with a
    call is their own.

    >>> from torch_scenarios.errors import Source
    >>> from torch_scenarios.expressions.functions import numpy_arrays
    >>> from torch_scenarios.model.groups import resolve
    >>> from torch_scenarios.model.scenario import Scenario
    >>> scenario = Scenario(source=Source(path="a.yaml", text=""), name="a", case="a", world_size=4)
    >>> process = Process(resolve(scenario, numpy_arrays()), 3, numpy_arrays())
    >>> process.rank, process.group("world").ranks, list(process.walk())
    (3, (0, 1, 2, 3), [])
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        arrays: Arrays,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        initialise: bool = True,
        ledger: ValueCounter | None = None,
        made: Callable[[Model, Process], Any] = trainee_of,
    ) -> None:
        """Bind constants, groups and initial values; `functions` replace or add names.

        `made` makes this rank's part of a model: in the reference, or on torch.
        `ledger` counts the initial values before they are held, and every turn of a loop. Raises
        ScenarioError where an initial value cannot be computed.
        """
        super().__init__(plan, rank, arrays)
        self.numbers = plan.numbers
        #: the way in which what it computes of a model is moved by its rounding; None: it is not
        self.way: int | None = None
        #: hears of each store into a part of a tensor, before and after it
        self.storing: StoreObserver | None = None
        self.held: set[str] = set()
        self.handles: set[str] = set()
        #: a call among those of a compound operation raised: the rest of them is not made
        self.broken_off = False
        #: what the last of them said, in order
        self.said: tuple[IssuedCall, ...] = ()
        #: what one of them brought is undefined, and with it what the whole leaves
        self.spoilt: Undefined | None = None
        #: whether a rank stops before a step, so that functions of other ranks may run
        self.pauses: Callable[[Step], bool] | None = None
        #: step index -> its call in the round before, where only other tensors would make another
        self._last: dict[int, Call] = {}
        self._ledger = ledger
        me = proxy(self)  # what it holds does not hold it: it is freed at once, uncollected
        self.scope = {
            # where Python looks a name up that the scope lacks: one table for all ranks
            "__builtins__": arrays.functions(),
            "group_rank()": partial(Membership.group_rank, me),
            "group_size()": partial(Membership.group_size, me),
            "group_ranks()": partial(Membership.group_ranks, me),
            "node_rank()": lambda: plan.place(rank)[0],
            "local_rank()": lambda: plan.place(rank)[1],
            **(functions or {}),
            **plan.scenario.constants,
            "rank": rank,
            "world_size": plan.world_size,
        }
        #: this rank's part of each model
        self.trainees: dict[str, Any] = {}
        #: the checkpoints that it knows to be written
        self.checkpoints: dict[str, Any] = {}
        self.enter()
        self._made = made
        if initialise:
            self._initialise()
            self.train()

    # ------------------------------------------------------------------ what it holds

    def _initialise(self) -> None:
        scenario = self.plan.scenario
        for name in self.plan.introduced:
            self.scope.setdefault(name, None)
        for name in (*scenario.tensors, *scenario.objects):
            self.scope[name] = None
        for name, form in scenario.objects.items():
            value = self.evaluate(form)
            if value is not None:
                self.hold(name, value)
        for name, form in scenario.tensors.items():
            if self._ledger is not None:
                self._ledger.begin(form.mark)
            value = self.tensor_value(form, dtype=DEFAULT_DTYPE)
            if value is not None:
                if self._ledger is not None:
                    self._ledger.keep((value,), form.mark, copies=2)  # held, and in the trace
                self._guard(partial(self.assign, name, value), form.mark)

    def train(self) -> dict[str, Any]:
        """Make this rank's part of each model that it trains; return what it holds of them."""
        held: dict[str, Any] = {}
        for model in self.plan.scenario.models.values():
            if model.where and not self.mesh(model.where):
                continue
            try:
                trainee = self.trainees[model.name] = self._made(model, self)
            except WeightError as error:
                raise ScenarioError([wrong_weight(error)]) from error
            held |= trainee.read_held()
        for name, value in held.items():
            self.hold(name, value)
        return held

    def hold(self, name: str, value: Any) -> None:
        """Let `name` hold `value` itself, without a copy."""
        self.scope[name] = value
        self.held.add(name)
        self.undefined.pop(name, None)
        self.layouts.pop(name, None)

    def compute(self, name: str, form: Form) -> None:
        """Let `name` hold a copy of the form's value; undefined if what it was made of is."""
        noted = len(self.undefined_reads)
        value = self.tensor_value(form, dtype=None)
        self._guard(lambda: self.assign(name, value), form.mark)
        if len(self.undefined_reads) > noted:
            self.undefined[name] = self.undefined_reads[-1][1]

    def let(self, name: str, form: Form) -> None:
        """Let a name stand for a number or a list of numbers; where it has none here, for nothing.

        Raises ScenarioError where the form is worth something else.
        """
        value = self.evaluate(form)
        if value is None:
            self.scope.pop(name, None)
            return
        try:
            self.scope[name] = numbers(value)
        except CANNOT_COMPUTE as error:
            raise ScenarioError([no_number(name, form.mark, self.rank, error)]) from error

    def read_numbers(self, among: Collection[str] | None = None) -> dict[str, Any]:
        """Return the numbers that are named on this rank now, or those of some names."""
        scope = self.scope
        known = self.numbers & scope.keys()
        return {name: scope[name] for name in sorted(known if among is None else known & {*among})}

    def turn(self, step: Step, value: int) -> None:
        """Begin a turn of a loop: what the one before has named is forgotten."""
        if step.numbers:
            self.forget(step)
        self.scope[step.variable or ""] = value

    def forget(self, step: Step) -> None:
        """Forget what the turns of a loop have named."""
        for name in step.numbers:
            self.scope.pop(name, None)

    def store(self, target: Expression, form: Form) -> None:
        """Store a form's value into a part of a tensor, in place; the value is computed first.

        Raises RefusedError where its size does not fit, ScenarioError where there is no such part.
        """
        (name,) = target.roots
        noted = len(self.undefined_reads)
        value = self._part_value(form)
        cause = self.undefined_reads[-1][1] if len(self.undefined_reads) > noted else None
        self._gives = True
        try:
            part = self.evaluate(target)
        finally:
            self._gives = False
        whole = self.scope.get(name)
        if not self.arrays.is_array(part) or not self._is_part(part, whole):
            raise ScenarioError([no_part(target, self.rank)])
        if self.storing is not None:
            self.storing(name, part, None, done=False)
        try:
            self.arrays.store(part, value)
        except ValueError as error:
            message = f"{target.text.strip()}: {error}"
            raise RefusedError(message) from error
        if self.storing is not None:
            self.storing(name, part, cause, done=True)

    def _part_value(self, form: Form) -> Any:
        """Return what is stored into a part: a copy, for it may be made of the part itself."""
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        if isinstance(chosen, Expression | Constant):
            value = self.evaluate(chosen)
            if value is None:
                raise ScenarioError([refuse_store(chosen.mark, self.rank)])
            if not self.arrays.is_array(value) and not _holds_arrays(self.arrays, value):
                return list(value) if isinstance(value, range | tuple) else value
        value = self.tensor_value(chosen, dtype=None)
        if not self.arrays.is_array(value):
            raise ScenarioError([refuse_store(chosen.mark if chosen else None, self.rank)])
        return self.arrays.copy(value)

    def _is_part(self, part: Any, whole: Any) -> bool:
        arrays = [whole] if self.arrays.is_array(whole) else whole
        if not isinstance(arrays, list):
            return False
        empty = 0 in tuple(part.shape)
        return empty or any(
            self.arrays.is_array(each) and self.arrays.shares(part, each) for each in arrays
        )

    def items(self, records: Iterable[Record]) -> Iterator[Mapping[str, Form]]:
        """Yield the items of a list that are there on this rank, each where its variables are.

        Raises ScenarioError where that cannot be computed.
        """
        for record in records:
            for _ in self._turns(record.loops):
                if record.ranks is None or self.selects(record.ranks):
                    yield record.fields

    def _turns(self, loops: tuple[tuple[str, Form], ...]) -> Iterator[None]:
        """Let variables count, the first outermost; they are gone afterwards."""
        if not loops:
            yield
            return
        (variable, over), *inner = loops
        try:
            for value in self.find_turns(over, variable, over.mark):
                self.scope[variable] = value
                yield from self._turns(tuple(inner))
        finally:
            self.scope.pop(variable, None)

    def assign(self, name: str, value: Any) -> None:
        """Let `name` hold a copy of `value`: an array, a list of arrays or a number."""
        if isinstance(value, list):
            self.hold(name, [self.arrays.copy(self._make_array(item)) for item in value])
        else:
            self.hold(name, self.arrays.copy(self._make_array(value)))

    def _make_array(self, value: Any) -> Any:
        return value if self.arrays.is_array(value) else self.arrays.array(value, DEFAULT_DTYPE)

    # ------------------------------------------------------------------ what others ask of it

    def perform(
        self, function: Function, given: Sequence[Any], cause: Undefined | None = None
    ) -> Any:
        """Run a function that a rank calls here; return a copy of what it returns, or None.

        `cause` says why an argument is undefined, if one is. Raises RefusedError where this rank
        lacks a tensor that it touches, ScenarioError where something cannot be computed.
        """
        if len(given) != len(function.arguments):
            takes = f"`{function.name}` takes {len(function.arguments)} arguments"
            message = f"{takes}, and is given {len(given)}"
            raise RefusedError(message)
        self._require(function)
        scope, undefined = self.scope, self.undefined
        kept = {name: scope[name] for name in function.arguments if name in scope}
        doubts = {name: undefined.pop(name) for name in function.arguments if name in undefined}
        scope.update(zip(function.arguments, given, strict=True))
        if cause is not None:
            undefined.update(dict.fromkeys(function.arguments, cause))
        try:
            return self._perform(function)
        finally:
            for name in function.arguments:
                scope.pop(name, None)
                undefined.pop(name, None)
            scope.update(kept)
            undefined.update(doubts)

    def _perform(self, function: Function) -> Any:
        for name, form in function.sets.items():
            if name in function.parts:
                self.store(function.parts[name], form)
            else:
                self.compute(name, form)
        if function.returns is None:
            return None
        noted = len(self.undefined_reads)
        value = self._keep(self.tensor_value(function.returns, dtype=None))
        return self.undefined_reads[-1][1] if len(self.undefined_reads) > noted else value

    def _require(self, function: Function) -> None:
        """Raise RefusedError where this rank holds nothing under a name that a function touches."""
        forms = [*function.sets.values(), *function.parts.values(), function.returns]
        chosen = (self.choose(form) if isinstance(form, PerRank) else form for form in forms)
        names = frozenset().union(*map(names_of, filter(None, chosen)), function.writes)
        scenario = self.plan.scenario
        tensors = {*scenario.tensors, *scenario.objects, *self.plan.introduced}
        for name in sorted(names & tensors - {*function.arguments}):
            if self.scope.get(name) is None:
                message = f"`{name}` has no value on rank {self.rank}, where `{function.name}` runs"
                raise RefusedError(message)

    def roots(self, form: Form | None) -> frozenset[str]:
        """Return the names of the held tensors whose storage the form's value may share here."""
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        return roots_of(chosen) & self.held

    def find_origin(self, name: str) -> Mark | None:
        """Return the place of the first step that gives a name a value; None where none does."""
        for step in steps_of(self.plan.scenario.steps):
            if step.operation is not None and name in step.operation.introduces(step.arguments):
                return step.mark
        return None

    # ------------------------------------------------------------------ the program

    def walk(self, after: tuple[int, tuple[int, ...]] | None = None) -> Iterator[Call]:
        """Yield this rank's calls in program order; what a call does must be done before the next.

        `after` is the index and the iteration of a step behind which to begin. Raises ScenarioError
        where a selector or an argument cannot be computed.
        """
        if after is None:
            yield from self._walk(self.plan.scenario.steps, ())
        else:
            yield from self._walk_after(self.plan.scenario.steps, (), *after)

    def _walk_after(
        self,
        steps: tuple[Step, ...],
        iteration: tuple[int, ...],
        index: int,
        instance: tuple[int, ...],
    ) -> Iterator[Call]:
        at = next(
            at
            for at, step in enumerate(steps)
            if step.index == index or any(each.index == index for each in steps_of(step.body))
        )
        loop = steps[at]
        if loop.variable is not None:
            rounds, turn = self.rounds(loop), instance[len(iteration)]
            if turn in rounds:
                self.scope[loop.variable] = turn
                yield from self._walk_after(loop.body, (*iteration, turn), index, instance)
                yield from self._walk_turns(loop, rounds[rounds.index(turn) + 1 :], iteration)
            self.forget(loop)
        yield from self._walk(steps[at + 1 :], iteration)

    def _walk(self, steps: tuple[Step, ...], iteration: tuple[int, ...]) -> Iterator[Call]:
        ledger = self._ledger
        for step in steps:
            if self.pauses is not None and self.pauses(step):
                entry = self._entry({})
                yield UpcomingStep(step=step, iteration=iteration, operation=None, entry=entry)
            if step.variable is not None:
                yield from self._walk_turns(step, self.rounds(step), iteration)
                self.forget(step)
            else:
                call = self.call(step, iteration)
                if call is not None and isinstance(call.operation, Compound):
                    yield from self._yield_calls(call, call.operation)
                elif call is not None:
                    yield call
                elif ledger is not None:
                    ledger.pass_by(step)

    def _walk_turns(
        self, loop: Step, rounds: list[int], iteration: tuple[int, ...]
    ) -> Iterator[Call]:
        for value in rounds:
            if self._ledger is not None:
                self._ledger.turn(loop)
            self.turn(loop, value)
            yield from self._walk(loop.body, (*iteration, value))

    # A step of training on one rank is a walk within the walk.
    #
    #     train  ->  Call(all_reduce, bucket 0)  Call(all_reduce, bucket 1)  Call(train, result)
    #
    # The generator of the strategy is at the first `yield` while that all_reduce waits for its
    # peers, so that ranks interleave between the calls of one step as they do in torch. The last
    # call has the result, and is the one that has an event: what is expected of a step is looked at
    # once all of it is done. Where a call in the middle raised, there is no last one.
    def _yield_calls(self, call: Call, operation: Compound) -> Iterator[Call]:
        """Yield the calls of which a compound operation is made, and then itself.

        The last one comes with the `result`; it does not come where one before it raised.
        """
        entry = call.entry
        if operation.refuse(entry) is not None:
            yield call
            return
        self.broken_off = False
        self.spoilt = next(
            (self.undefined[name] for name in call.read if name in self.undefined), None
        )
        parts = operation.parts(self, entry)
        roots = frozenset().union(*call.roots.values())
        result, self.said, label = None, (), operation.label(entry)
        while not self.broken_off:
            try:
                with np.errstate(all="ignore"):  # what overflows is a value, as in torch
                    part = next(parts)
            except StopIteration as end:
                result = end.value
                break
            except DataError as error:
                raise ScenarioError(
                    [cannot_compute(f"`{label}`", call.step.mark, self.rank, error)]
                ) from error
            stored = {each.name: roots for each in part.operation.params if each.writes}
            self.said = (*self.said, *read_issued(part))
            yield Call(
                step=call.step,
                iteration=call.iteration,
                operation=part.operation,
                entry=Entry(rank=self.rank, group=part.group, arguments=part.arguments),
                roots=stored,
                handle=part.handle,
                mark=call.mark,
                whole=label,
            )
        if not self.broken_off:
            with_result = replace(entry, arguments={**entry.arguments, "result": result})
            yield replace(call, entry=with_result)

    def rounds(self, step: Step) -> list[int]:
        """Return what the variable of a `for` counts through; nothing where this rank skips it.

        Raises ScenarioError where that cannot be computed.
        """
        if step.ranks is not None and not self.selects(step.ranks):
            return []
        return self.find_turns(step.over, step.variable or "", step.mark)

    def call(self, step: Step, iteration: tuple[int, ...]) -> Call | None:
        """Return a step's call as this rank makes it now; None where it does not take the step.

        Raises ScenarioError where a selector or an argument cannot be computed.
        """
        self._at = step.mark
        operation = step.operation
        if step.ranks is not None and not self.selects(step.ranks):
            return None
        if operation is None:
            entry = self._entry({})
            mark = self._place(step)
            return Call(step=step, iteration=iteration, operation=None, entry=entry, mark=mark)
        known = self.plan.prepared.get(step.index)
        if known is None:
            known = self.plan.prepared[step.index] = prepare(step)
        group = self.group(
            operation.group_of(self, step.arguments) if known.computed else known.group
        )
        if step.ranks is None and group.group_rank(self.rank) < 0:
            return None
        if not operation.concerns(self, step.arguments):
            return None
        last = self._last.get(step.index)
        if last is not None and last.entry.group is group and self._has_same_tensors(last, known):
            entry, roots = last.entry, last.roots
        else:
            entry = Entry(rank=self.rank, group=group, arguments=self._arguments(step, known))
            roots = (
                operation.roots(self, step.arguments) if known.roots is None else self._roots(known)
            )
        call = Call(
            step=step,
            iteration=iteration,
            operation=operation,
            entry=entry,
            roots=roots,
            handle=step.handle if step.handle_index is None else self._index_handle(step),
            mark=step.mark if step.at is None else self._place(step),
        )
        if known.names is not None and known.arguments is not None and iteration:
            self._last[step.index] = call
        return call

    def _place(self, step: Step) -> Mark | None:
        """Return the place of a step, with that of the program which this rank was recorded at."""
        if step.mark is None or not isinstance(step.at, PerRank):
            return step.mark
        return replace(step.mark, at=self.choose(step.at) or None)

    def _index_handle(self, step: Step) -> str:
        """Return the name of a handle with the value of its index."""
        index = self.evaluate(step.handle_index)
        number = self._guard(partial(take_integer, index), step.mark)
        return f"{step.handle}[{number}]"

    def keep(self, call: Call) -> None:
        """Know the handle of work that was started, and of `up[3]` that there is an `up`."""
        if call.handle is not None and call.step.handle is not None:
            self.handles |= {call.handle, call.step.handle}

    # Identity and not equality: a call hands over the tensor that the name holds, and an operation
    # stores into it. A loop whose body is `x = x + 1` and `all_reduce x` makes another tensor each
    # round, and the call of the round before would reduce the old one. With `x += 1` in place it is
    # the same one, and the arguments of the last round are right without a look at them (decision
    # 28).
    def _has_same_tensors(self, call: Call, known: PreparedCall) -> bool:
        """Return whether a call would be the same now: its tensors are what their names hold."""
        arguments, scope = call.entry.arguments, self.scope
        for (param, _), name in zip(known.given, known.names or (), strict=True):
            if arguments[param.name] is not scope.get(name):
                return False
        return True

    def _arguments(self, step: Step, known: PreparedCall) -> dict[str, Any]:
        assert step.operation is not None
        if known.arguments is None:
            return step.operation.evaluate(self, step.arguments)
        arguments = known.arguments.copy()
        for param, form in known.given:
            arguments[param.name] = self.evaluate_argument(param, form)
        return arguments

    def _roots(self, known: PreparedCall) -> dict[str, frozenset[str]]:
        """Return, by argument, the names of the held tensors whose storage it may share here."""
        assert known.roots is not None
        found = {name: roots & self.held for name, roots in known.roots.items()}
        for name, form in known.chosen:
            found[name] = self.roots(form)
        return found

    def _entry(self, arguments: dict[str, Any]) -> Entry:
        return Entry(rank=self.rank, group=self.group(WORLD), arguments=arguments)

    def observe(self, step: Step) -> dict[str, Any]:
        """Evaluate the keys of the step's expectations that are more than a name, by their text.

        With them are the numbers that are named here, by their names. What a key asks
        `before(x, r)` of other ranks only the judge can say.
        """
        if step.expect is None:
            return {}
        stated = step.expect.values
        keys = (value.key for value in stated if not value.key.before)
        forms = (form for value in stated for form in (value.key, value.wanted))
        read = frozenset().union(*map(names_of, forms)) if self.numbers else NOTHING
        return self.read_numbers(read) | {
            key.text: self._keep(self.evaluate(key)) for key in keys if key.text not in self.scope
        }

    def _keep(self, value: Any) -> Any:
        """Return a value that later steps cannot change: a key such as `x[0]` is a view."""
        if isinstance(value, list):
            return [self._keep(item) for item in value]
        return self.arrays.copy(value) if self.arrays.is_array(value) else value


# -------------------------------------------------------------------------------------------------
# What a step's call depends on: while that is as it was, the call is the same.
#
# Told from the step alone, before it is taken. What tells nothing beforehand is evaluated each
# time: an expression that looks into a tensor, or one that makes a tensor.

#: kinds of arguments whose list torch may store other objects into
OBJECTS = frozenset({"object", "objects"})
#: kinds of arguments that are stored into: each call wants the very object that a name holds
STORED = OBJECTS | {"tensor", "tensors", "tensor_lists"}

NOTHING: frozenset[str] = frozenset()


class KnownCall(Struct, frozen=True, kw_only=True):
    """What is known beforehand of one step's call.

    `selection` are the names on which it depends who takes the step, `names` those on which the
    call does, the selection included; None where only evaluating it tells. `counting` are the
    expressions that count with the loop right around the step: it is another call each round,
    and the same where these have the same values. `tensors` maps the arguments that are one
    tensor, given by its name, to that name.
    """

    selection: frozenset[str] | None = None
    names: frozenset[str] | None = None
    counting: tuple[Expression, ...] = ()
    tensors: Mapping[str, str] = field(default_factory=dict)


#: of a step that no caller asked about
UNKNOWN = KnownCall()


class KnownCalls:
    """What is known beforehand of the calls of one plan.

        for i in range(1000): send x to (rank + i) % n      another peer each round: `counting`
        for i in range(1000): all_reduce x                  the same call each round

    A worker asks it for each step: a call that is as it was costs a comparison of a few identities.
    """

    def __init__(self, plan: Plan) -> None:
        """Tell the names that may come to hold something else from those that may not."""
        scenario = plan.scenario
        self._held = {*scenario.tensors, *scenario.objects, *plan.introduced}
        loops = [step for step in steps_of(scenario.steps) if step.variable is not None]
        self._changing = self._held | {str(loop.variable) for loop in loops} | plan.numbers
        #: step index -> the variable of the loop right around it, another each round
        self._counted = {step.index: loop.variable for loop in loops for step in loop.body}
        self._known: dict[int, KnownCall] = {}

    def of(self, step: Step) -> KnownCall:
        """Return what is known of a step, which is found out once."""
        known = self._known.get(step.index)
        if known is None:
            variable = self._counted.get(step.index)
            selection = self._names(step.ranks.form, "ranks") if step.ranks else NOTHING
            names = self._call(step, selection)
            counting = () if names is None else self._find_counting(step, variable)
            if names is not None and variable in names and not counting:
                names = None
            lasting = self._changing - ({variable} if counting else NOTHING)
            known = self._known[step.index] = KnownCall(
                selection=None if selection is None else selection & lasting,
                names=None if names is None else names & lasting,
                counting=counting,
                tensors=_tensors(step),
            )
        return known

    def _find_counting(self, step: Step, variable: str | None) -> tuple[Expression, ...]:
        """Return the expressions that a variable occurs in; none where it occurs in a list, too."""
        forms = [(step.ranks.form, self._names(step.ranks.form, "ranks"))] if step.ranks else []
        if step.handle_index is not None:
            forms.append((step.handle_index, self._names(step.handle_index, "rank")))
        for param in step.operation.params if step.operation else ():
            form = step.arguments.get(param.name)
            if form is not None:
                forms.append((form, self._argument(param, form)))
        counting = [form for form, names in forms if names and variable in names]
        found = tuple(form for form in counting if isinstance(form, Expression))
        return found if len(found) == len(counting) else ()

    def _call(self, step: Step, selection: frozenset[str] | None) -> frozenset[str] | None:
        """Return the names on which a call depends; None for one that changes the groups."""
        operation = step.operation
        if isinstance(operation, GroupCreation | Compound):
            return None
        if isinstance(operation, Local) and operation.calls_torch:
            return None
        given = step.arguments
        arguments = [
            self._argument(param, given.get(param.name))
            for param in (operation.params if operation else ())
        ]
        return self._join([selection, self._names(step.handle_index, "rank"), *arguments])

    def _argument(self, param: Param, form: Form | None) -> frozenset[str] | None:
        if param.kind in {"assignments", "numbers"}:
            return NOTHING  # evaluated by the act itself, each time
        if param.fields and isinstance(form, ListForm):
            return self._join([self._item(param, item) for item in form.items])
        return self._names(form, param.kind)

    def _item(self, param: Param, form: Form) -> frozenset[str] | None:
        if not isinstance(form, Record) or form.ranks is not None or form.loops:
            return None
        given = form.fields
        return self._join(
            [self._names(given.get(field.name), field.kind) for field in param.fields]
        )

    def _join(self, parts: list[frozenset[str] | None]) -> frozenset[str] | None:
        known = [part for part in parts if part is not None]
        return NOTHING.union(*known) if len(known) == len(parts) else None

    def _names(self, form: Form | None, kind: str) -> frozenset[str] | None:
        match form:
            case None:
                return NOTHING
            case Constant():
                return NOTHING if kind not in STORED or form.value is None else None
            case Expression() if kind in STORED:
                return form.names if _is_name(form) else None
            case Expression():
                return None if form.names & self._held else form.names
            case ListForm() if kind not in OBJECTS:
                return self._join([self._names(item, kind) for item in form.items])
            case PerRank():
                selectors = [self._names(each.form, "ranks") for each, _ in form.branches]
                values = [self._names(value, kind) for _, value in form.branches]
                return self._join([*selectors, *values, self._names(form.otherwise, kind)])
            case _:
                return None


def _tensors(step: Step) -> dict[str, str]:
    given = {
        param.name: step.arguments.get(param.name)
        for param in (step.operation.params if step.operation else ())
        if param.kind == "tensor"
    }
    return {
        name: form.text.strip()
        for name, form in given.items()
        if isinstance(form, Expression) and _is_name(form)
    }


def key(step: Step) -> Hashable:
    """Return what a step has in common with others written alike; None where that is open."""
    if step.expect is not None or step.operation is None:
        return None
    forms = [*step.arguments.values()]
    if step.ranks is not None:
        forms.append(step.ranks.form)
    if step.handle_index is not None:
        forms.append(step.handle_index)
    parts = tuple(_part(form) for form in forms)
    if None in parts:
        return None
    return (step.operation, step.name, step.handle, tuple(step.arguments), parts)


def _part(form: Form) -> Any:
    match form:
        case Expression():
            return form.code
        case Constant():
            return (form.value.__class__, repr(form.value))
        case _:
            return None


def _is_name(form: Expression) -> bool:
    return form.names == {form.text.strip()}
