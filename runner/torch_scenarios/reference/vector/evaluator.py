"""Value expressions -> values on all active ranks at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.errors import Mark, ScenarioError
from torch_scenarios.expressions import lanes
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE, TypedEvaluator, numbers, wholes
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.expressions.hollow import hollow, is_hollow
from torch_scenarios.expressions.values import (
    Constant,
    Expression,
    Form,
    PerRank,
    Record,
    Selector,
    names_of,
    roots_of,
)
from torch_scenarios.limits import Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Process
from torch_scenarios.model.scenario import Step, steps_of
from torch_scenarios.reference.state import Ledger, count_held_bytes, frozen
from torch_scenarios.reference.vector.call import Instance
from torch_scenarios.reference.vector.cohort import (
    LARGEST,
    ActiveRanks,
    CohortError,
    LetBindings,
    Scene,
    View,
    leave,
    make_list,
    stay_small,
)
from torch_scenarios.reference.vector.state import Memory

# -------------------------------------------------------------------------------------------------
# The program as one row of step instances: loops unrolled, the same for every rank.
#
# A rank takes the instances in order and passes those that do not select it. Where it stands is
# one number, so that the ranks that are furthest behind are known at once.

#: bytes of an instance, and of what its loops' variables are (measured)
INSTANCE_BYTES = 400


class Unrolled:
    """The instances of a program, made as far as ranks have come.

    All ranks number them alike, so that "the furthest behind" is a minimum of integers. That needs
    loops whose turns are the same on every rank; a loop's own `ranks:` is the mask of its
    instances. Where the turns depend on the rank, the program is left to the walk.
    """

    def __init__(
        self, steps: tuple[Step, ...], evaluation: Evaluation, world: ActiveRanks, ledger: Ledger
    ) -> None:
        """Begin before the first step."""
        self._ledger = ledger
        self._evaluation = evaluation
        self._world = world
        self._made: dict[int, Instance] = {}
        self._next = 0
        self._settled = _find_settled(steps)
        #: whether all ranks are at the instance that is made next
        self._together = True
        #: what `let` names in the outermost list
        self.numbers = {name: LetBindings(world.world_size) for name in evaluation.numbers}
        self._coming = self._walk(steps, (), self.numbers, None)

    def at(self, number: int, *, together: bool) -> Instance | None:
        """Return an instance; None behind the last one. `together` says that all ranks are here."""
        self._together = together
        while number >= self._next:
            following = next(self._coming, None)
            if following is None:
                return None
            step, iteration, variables, mask = following
            self._ledger.keep_bytes(INSTANCE_BYTES, step.mark)
            self._made[self._next] = Instance(self._next, step, iteration, variables, mask)
            self._next += 1
        return self._made[number]

    def _walk(
        self,
        steps: tuple[Step, ...],
        iteration: tuple[int, ...],
        variables: Mapping[str, int | LetBindings],
        mask: NDArray[np.bool_] | None,
    ) -> Iterator[tuple[Any, ...]]:
        for step in steps:
            if step.variable is None:
                if step.index in self._settled and mask is None:
                    self._evaluation.settle(step, self._world, variables)
                yield step, iteration, variables, mask
                continue
            inner = mask
            if step.ranks is not None:
                chosen = self._evaluation.before_all(step.ranks, variables, self._world)
                inner = chosen if mask is None else chosen & mask
            for value in self._rounds(step, variables):
                self._ledger.turn(step)
                size = self._world.world_size
                known = {**variables, step.variable: value}
                known |= {name: LetBindings(size) for name in step.numbers}
                yield from self._walk(step.body, (*iteration, value), known, inner)

    def _rounds(self, step: Step, variables: Mapping[str, int | LetBindings]) -> Iterator[int]:
        assert step.over is not None
        yield from self._evaluation.find_turns(
            step.over, variables, self._world, together=self._together
        )


def _find_settled(steps: tuple[Step, ...]) -> frozenset[int]:
    """Return the steps that name numbers which nothing names anew, on every rank."""
    lets = [step for step in steps_of(steps) if _find_named(step)]
    counts = Counter(name for step in lets for name in _find_named(step))
    return frozenset(
        step.index
        for step in lets
        if step.ranks is None and all(counts[name] == 1 for name in _find_named(step))
    )


def let_forms(step: Step) -> Mapping[str, Form]:
    """Return what a `let` names, in order."""
    (form,) = step.arguments.values()
    assert isinstance(form, Record)
    return form.fields


def _find_named(step: Step) -> tuple[str, ...]:
    return () if step.operation is None else step.operation.numbers(step.arguments)


# -------------------------------------------------------------------------------------------------
# Forms -> values on all active ranks at once.
#
# The evaluator of expressions is run once for all of them, with what names hold bound as lanes
# (:mod:`torch_scenarios.expressions.lanes`); where ranks have to be computed apart, once for each
# part, at last rank by rank in a process of the other engine. What depends on the rank alone is
# computed once for all ranks and kept.


class Names:
    """Binds the names of one plan on some ranks: in lanes, or on one rank alone.

        an expression on ranks 0, 1, 3          `many` binds
        rank                                    lanes [0, 1, 3]
        x, held by all three                    a view of the column x on these ranks
        `group_rank("even")`                    lanes, -1 where a rank is not in a group of the name
        y, held by ranks 0 and 1 only           Diverge: ranks 0 and 1 are computed, then rank 3

    `one` binds the same names as one rank has them, in a process of the other engine. So what lanes
    cannot do has one meaning as well, and not a third.
    """

    def __init__(self, plan: Plan, arrays: NumpyArrays, memory: Memory, most: int) -> None:
        """Bind what is the same on every rank; an expression may make `most` elements at a time."""
        self._plan = plan
        self._memory = memory
        self._active = ActiveRanks(np.arange(plan.world_size), plan.world_size)
        self._held = {*plan.scenario.tensors, *plan.scenario.objects, *plan.introduced}
        self._always = {"rank", "world_size", *plan.scenario.constants} - plan.names.keys()
        self._lanes = lanes.LaneEvaluator(lanes.LaneArrays(arrays, most))
        self._process = Process(plan, 0, arrays, initialise=False)
        #: on which host each rank is, and which process of it `[W, 2]`
        self._places: NDArray[np.int64] | None = None
        self._lanes.scope = {
            "__builtins__": self._lanes.arrays.functions(),
            "group_rank()": self._group_rank,
            "group_size()": self._group_size,
            "group_ranks()": self._group_list,
            "node_rank()": lambda: self._find_place(0),
            "local_rank()": lambda: self._find_place(1),
            **plan.scenario.constants,
            "world_size": plan.world_size,
        }

    def many(self, names: frozenset[str], scene: Scene) -> lanes.LaneEvaluator:
        """Return the evaluator of the ranks of a scene; Diverge where only some hold a name."""
        self._active = active = scene.active
        scope = self._lanes.scope
        scope["rank"] = active.rank
        for name in names - self._always:
            if name in scene.variables:
                found = scene.variables[name]
                scope[name] = found.on(active) if isinstance(found, LetBindings) else found
            elif name in self._held:
                view = self._view(name, active)
                scope[name] = view.items() if view is not None and view.listed else view
            elif name in self._memory.groups:
                scope[name] = self._group_list(name)
            else:
                scope.pop(name, None)
        return self._lanes

    def one(self, names: frozenset[str], rank: int, scene: Scene) -> Process:
        """Return a process that has become one rank."""
        process, plan = self._process, self._plan
        process.rank = process.scope["rank"] = rank
        process.groups.clear()
        for name in self._memory.groups:
            group = self._memory.group(name, rank)
            if group is not None:
                process.groups[name] = group
            process.scope[name] = group.listed if group else []
        for name in names & (scene.variables.keys() | plan.numbers):
            process.scope.pop(name, None)
            if name in scene.variables:
                found = scene.variables[name]
                process.scope[name] = value = (
                    found.of(rank) if isinstance(found, LetBindings) else found
                )
                if value is None:
                    raise NameError(name)
        active = ActiveRanks(np.asarray([rank]), plan.world_size)
        for name in names & self._held:
            view = self._view(name, active)
            process.scope[name] = None if view is None else make_list(view.row(0), view.listed)
        return process

    def _view(self, name: str, active: ActiveRanks) -> View | None:
        column = self._memory.columns.get(name)
        self._memory.check_ragged({name})
        if column is None:
            return None
        held = column.held[active.index]
        if not column.whole and not held.all():
            if held.any():
                raise lanes.Diverge(held)
            return None
        return self._memory.view(name, active)

    # ------------------------------------------------------------------ what expressions ask

    def _group_rank(self, name: str) -> lanes.Lanes:
        return lanes.Lanes(
            self._memory.group_ranks(name)[self._active.index], self._plan.world_size
        )

    def _group_size(self, name: str) -> lanes.Value:
        sizes = self._memory.group_sizes(name)[self._active.index]
        first = int(sizes[0])
        return first if (sizes == first).all() else lanes.Lanes(sizes, self._plan.world_size)

    def _group_list(self, name: str) -> Any:
        """Return the ranks of each rank's group of that name: a list of lanes where they differ."""
        inside = self._memory.group_numbers(name)[self._active.index]
        groups = self._memory.groups[name]
        first = int(inside[0])
        if (inside == first).all():
            return [] if first < 0 else list(groups[first].ranks)
        sizes = {groups[number].size if number >= 0 else 0 for number in np.unique(inside)}
        if len(sizes) > 1 or len(inside) * max(sizes) > lanes.ITEMS:
            raise lanes.Diverge(inside)
        members = np.asarray([group.ranks for group in groups if group.size in sizes], np.int64)
        rows = np.cumsum([group.size in sizes for group in groups])[inside] - 1
        return [lanes.Lanes(column, self._plan.world_size) for column in members[rows].T]

    def _find_place(self, part: int) -> lanes.Lanes:
        if self._places is None:
            size = self._plan.world_size
            self._places = np.asarray([self._plan.place(rank) for rank in range(size)], np.int64)
        return lanes.Lanes(self._places[self._active.index, part], self._plan.world_size)


Computed = TypeVar("Computed")
Kind = TypeVar("Kind")


class Evaluation:
    """Evaluates the forms of one plan.

    A form that names nothing but the rank, constants and groups is the same in each turn of a loop.
    It is computed once for the whole world and kept: a ring of 1,024 ranks asks 2,046 times for
    `(rank + 1) % world_size`.
    """

    def __init__(self, plan: Plan, arrays: NumpyArrays, memory: Memory, limits: Limits) -> None:
        """Know no value yet."""
        self._plan = plan
        self._arrays = arrays
        self._functions = arrays.functions()
        self._memory = memory
        #: elements that one expression may make at a time
        most = 2**62 if memory.hollow else min(limits.max_elements, LARGEST // 16)
        self._bound = Names(plan, arrays, memory, most)
        self._names: dict[int, tuple[Form, frozenset[str]]] = {}
        self._kept: dict[int, lanes.Value] = {}
        self._unkept: set[int] = set()
        self._masks: dict[int, NDArray[np.bool_]] = {}
        self._chosen: dict[int, ActiveRanks | None] = {}
        self._world = ActiveRanks(np.arange(plan.world_size), plan.world_size)
        #: what `let` names, and what of it is the same whenever a rank comes there
        self.numbers = plan.numbers
        self.settled: set[str] = set()
        self._fixed = {"rank", "world_size", *plan.scenario.constants, *plan.names}

    def _compute(
        self, form: Form, scene: Scene, run: Callable[[TypedEvaluator], Any]
    ) -> lanes.Value:
        """Return what `run` gives on the active ranks, as one value.

        Raises CohortError where it gives nothing on one of them, or values of several types.
        """
        return self.guard(
            lambda: lanes.join_parts(list(self._parts(form, scene, run)), scene.active.size)
        )

    def _parts(
        self, form: Form, scene: Scene, run: Callable[[TypedEvaluator], Any]
    ) -> Iterator[tuple[NDArray[np.int64] | None, lanes.Value]]:
        """Yield what `run` gives on the active ranks, by the rows that have it in common."""
        names, active = self._names_of(form), scene.active

        def many(rows: NDArray[np.int64] | None) -> lanes.Value:
            if rows is None:
                return run(self._bound.many(names, scene))
            part = ActiveRanks(active.ranks[rows], active.world_size)
            return run(self._bound.many(names, Scene(part, scene.variables)))

        yield from lanes.split(active.size, many, self._evaluate_each(form, scene, run))

    def _evaluate_each(
        self, form: Form, scene: Scene, run: Callable[[TypedEvaluator], Any]
    ) -> Callable[[int], Any]:
        """Return what gives the value of a form on one rank after the other, by rows."""
        names, made = self._names_of(form), 0

        def one(row: int) -> Any:
            nonlocal made
            value = run(self._bound.one(names, int(scene.active.ranks[row]), scene))
            made += 0 if self._memory.hollow else count_held_bytes(value)
            stay_small(made)
            return value

        return one

    def guard(self, compute: Callable[[], Computed]) -> Computed:
        """Return what is computed. Raises CohortError where no column holds that.

        That is where some rank has no such value, and where ranks have values of several types or
        shapes. All that is read as a value of some type is read in here: this is the one place that
        says so.
        """
        try:
            return compute()
        except (ScenarioError, lanes.Diverge, lanes.MixedRows, *CANNOT_COMPUTE):
            leave("values that are not to be computed, or of several types or shapes")

    def compute_apart(self, form: Form, active: ActiveRanks, dtype: str | None) -> list[Any]:
        """Return a copy of what a form is on each rank, by the walk's own evaluator.

        With a `dtype` it is a tensor, or a list of them. Raises CohortError where it has no
        value.
        """

        def run(evaluator: TypedEvaluator) -> Any:
            if dtype is None:
                return evaluator.evaluate(form)
            return evaluator.tensor_value(form, dtype=dtype)

        one = self._evaluate_each(form, Scene(active, {}), run)
        return self.guard(lambda: [frozen(one(row)) for row in range(active.size)])

    def _names_of(self, form: Form) -> frozenset[str]:
        if isinstance(form, Expression):
            return form.names
        found = self._names.get(id(form))
        if found is None:
            found = self._names[id(form)] = (form, names_of(form))
        return found[1]

    def lists(self, form: Form, scene: Scene) -> list[list[int]]:
        """Return the list of integers that a form is on each active rank."""
        return self.guard(lambda: self._lists(form, scene))

    def _lists(self, form: Form, scene: Scene) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(scene.active.size)]
        for rows, value in self._parts(form, scene, lambda each: each.evaluate(form)):
            here = range(scene.active.size) if rows is None else rows.tolist()
            for place, row in enumerate(here):
                found[row] = wholes(lanes.take_row(value, place))
        return found

    def find_turns(
        self,
        form: Form,
        variables: Mapping[str, int | LetBindings],
        world: ActiveRanks,
        *,
        together: bool,
    ) -> Sequence[int]:
        """Return what a loop counts through, the same on every rank, before any of them gets there.

        `together` says that all of them are here, so that numbers are known which ranks name.
        """
        self.guard(lambda: self._check_fixed(form, variables, together=together))
        return self.read(form, Scene(world, variables), _read_turns)

    # ------------------------------------------------------------------ what `let` names

    def settle(
        self, step: Step, world: ActiveRanks, variables: Mapping[str, int | LetBindings]
    ) -> None:
        """Name, before any rank comes there, what depends on no tensor and is named once."""
        for name, form in let_forms(step).items():
            known = self._fixed | (variables.keys() - self.numbers) | self.settled
            if not self._names_of(form) <= known:
                return
            self.settled.discard(name)
            try:
                self.let(name, form, Scene(world, variables))
            except CohortError:
                return
            self.settled.add(name)

    def let(self, name: str, form: Form, scene: Scene) -> None:
        """Name a number on the active ranks; raises CohortError where one has none."""
        if name in self.settled:
            return
        named = scene.variables[name]
        assert isinstance(named, LetBindings)
        numbers = self.guard(
            lambda: list(self._parts(form, scene, lambda each: _numbers(each.evaluate(form))))
        )
        for rows, value in numbers:
            active = scene.active
            if rows is not None:
                active = ActiveRanks(active.ranks[rows], active.world_size)
            named.assign(active, value)

    def number(self, name: str, scene: Scene) -> lanes.Value:
        """Return what `let` has named on the active ranks."""
        found = scene.variables[name]
        return (
            self.guard(lambda: found.on(scene.active)) if isinstance(found, LetBindings) else found
        )

    # ------------------------------------------------------------------ plain values

    def value(self, form: Form | None, scene: Scene) -> lanes.Value:
        """Return what a form is worth on the active ranks; None where it is nothing on all."""
        if form is None:
            return None
        if isinstance(form, Constant):
            return form.value
        key = id(form)
        if key in self._kept:
            return _narrow(self._kept[key], scene.active)
        if key not in self._unkept and self._is_fixed(form):
            try:
                found = self._value(form, Scene(self._world, {}))
            except CohortError:
                found = None
            if found is not None and not _is_large(found):
                self._kept[key] = found
                return _narrow(found, scene.active)
            self._unkept.add(key)
        return self._value(form, scene)

    def _value(self, form: Form, scene: Scene) -> lanes.Value:
        return self._compute(form, scene, lambda evaluator: evaluator.evaluate(form))

    def _check_fixed(
        self, form: Form, variables: Mapping[str, int | LetBindings], *, together: bool = True
    ) -> None:
        """Raise NameError where a form looks at more than the rank and the variables of loops.

        Where not all ranks are `together`, numbers that some of them have yet to name are more.
        """
        known = self._fixed | variables.keys()
        if not self._names_of(form) <= (known if together else known - self.numbers | self.settled):
            raise NameError

    def _is_fixed(self, form: Form) -> bool:
        return self._names_of(form) <= self._fixed

    def read(
        self, form: Form, scene: Scene, convert: Callable[[lanes.Value], Computed]
    ) -> Computed:
        """Return what `convert` makes of a form's value on the active ranks."""
        value = self.value(form, scene)
        return self.guard(lambda: convert(value))

    # ------------------------------------------------------------------ selectors

    def select(self, selector: Selector, scene: Scene) -> ActiveRanks | None:
        """Return the active ranks that a selector selects; None where it selects none."""
        key, active = id(selector), scene.active
        if active.everyone and key in self._chosen:
            return self._chosen[key]
        fixed = self._is_fixed(selector.form)
        if fixed and key not in self._masks:
            try:
                self._masks[key] = self._mask(selector, Scene(self._world, {}))
            except CohortError:
                fixed = False
        mask = self._masks[key][active.index] if fixed else self._mask(selector, scene)
        chosen = active.among(mask) if mask.any() else None
        if fixed and active.everyone:
            self._chosen[key] = chosen
        return chosen

    def before_all(
        self, selector: Selector, variables: Mapping[str, int | LetBindings], world: ActiveRanks
    ) -> NDArray[np.bool_]:
        """Return the ranks `[W]` that a selector selects before any of them gets there."""
        self.guard(lambda: self._check_fixed(selector.form, variables))
        return self._mask(selector, Scene(world, variables))

    def _mask(self, selector: Selector, scene: Scene) -> NDArray[np.bool_]:
        form, active = selector.form, scene.active
        if isinstance(form, Expression) and form.text.strip() in self._memory.groups:
            return np.asarray(self._memory.group_ranks(form.text.strip())[active.index] >= 0)
        found = self._compute(form, scene, lambda evaluator: evaluator.selects(selector))
        return found.values if isinstance(found, lanes.Lanes) else np.full(active.size, found)

    def branches(self, form: PerRank[Any], scene: Scene) -> Iterator[tuple[ActiveRanks, Any]]:
        """Yield who of the active ranks takes which branch, those of none with None."""
        left = scene.active
        for selector, value in form.branches:
            chosen = self.select(selector, Scene(left, scene.variables))
            if chosen is None:
                continue
            yield chosen, value
            if chosen.size == left.size:
                return
            left = left.among(~np.isin(left.ranks, chosen.ranks))
        yield left, form.otherwise

    # ------------------------------------------------------------------ tensors

    def tensor(self, form: Form, scene: Scene, dtype: str | None = None) -> lanes.Value:
        """Return the tensor that a form is on the active ranks; an array where it is one for all.

        As :meth:`torch_scenarios.expressions.evaluator.Evaluator.tensor_value`; None where it is
        none on all of them.
        """
        return self._compute(
            form, scene, lambda evaluator: evaluator.tensor_value(form, dtype=dtype)
        )

    def hold(
        self, name: str, value: lanes.Value, active: ActiveRanks, mark: Mark | None
    ) -> NDArray[Any]:
        """Let a name hold a tensor, or a list of tensors; returns its elements."""
        return self.guard(lambda: self._memory.hold(name, active, value, mark))

    def argument(self, form: Form | None, scene: Scene) -> lanes.Stack:
        """Return a tensor argument; raises CohortError where it shares storage."""
        value = None if form is None else self.tensor(form, scene)
        if isinstance(value, np.ndarray):
            wide = (scene.active.size, *value.shape)
            value = lanes.Stack(
                hollow(wide, value.dtype) if is_hollow(value) else np.broadcast_to(value, wide)
            )
        kind = View if roots_of(form) else lanes.Stack
        found = self.guard(lambda: _convert_kind(value, kind))
        if isinstance(found, View):
            found.guard = None  # what the call reads of it, its flights tell
        return found

    def tensors(self, form: Form | None, scene: Scene) -> View:
        """Return a list of tensors; raises CohortError for one that no name holds."""
        name = form.text.strip() if isinstance(form, Expression) else ""
        held = None if name in scene.variables else self._memory.view(name, scene.active)
        view = self.guard(lambda: _convert_kind(held, View, listed=True))
        view.guard = None
        return view

    def part(self, form: Form, scene: Scene) -> View:
        """Return the part of a tensor that is stored into: on all active ranks of one size."""
        value = self.tensor(form, scene)
        view = self.guard(lambda: _convert_kind(value, View))
        view.guard = None
        return view

    def evaluate_stored(self, form: Form, scene: Scene) -> lanes.Stack | np.ndarray[Any, Any]:
        """Return what is stored into a part of a tensor: numbers are as wide as they can be."""
        if isinstance(form, Expression | Constant):
            value = self.value(form, scene)
            if isinstance(value, lanes.Lanes):
                return lanes.Stack(value.values)
            if value.__class__ in {bool, int, float, complex}:
                return np.asarray(value)
        found = self.tensor(form, scene)
        if isinstance(found, np.ndarray):
            return found
        stored = self.guard(lambda: _convert_kind(found, lanes.Stack))
        return stored.copy() if isinstance(stored, View) else stored

    def fit(
        self, value: lanes.Stack | np.ndarray[Any, Any], part: View, size: int
    ) -> np.ndarray[Any, Any]:
        """Return a value `[L, *shape]` broadcast to a part, in its dtype; as `copy_` casts."""
        found = value.values if isinstance(value, lanes.Stack) else value[np.newaxis]
        missing = max(len(part.shape) - (found.ndim - 1), 0)
        aligned = found.reshape(len(found), *(1,) * missing, *found.shape[1:])
        shape = (size, *part.shape)
        if part.column.hollow:
            aligned = np.broadcast_to(np.zeros((), part.dtype), aligned.shape)
        dtype = self._arrays.dtype(np.empty(0, part.dtype))
        cast = self._functions["astype()"](aligned, dtype)
        wide = self.guard(lambda: np.broadcast_to(cast, shape))
        return hollow(shape, part.dtype) if part.column.hollow else np.array(wide)


def _convert_kind(value: lanes.Value, kind: type[Kind], *, listed: bool = False) -> Kind:
    """Return a value of a kind, a whole list of tensors if it is to be; TypeError for another."""
    if not isinstance(value, kind) or (listed and not getattr(value, "listed", False)):
        raise TypeError(kind)
    return value


def read_same(value: lanes.Value) -> lanes.Value:
    """Return a value that is the same on all ranks; TypeError for one that is not."""
    if lanes.varies(value) or isinstance(value, np.ndarray | np.generic):
        raise TypeError(value)
    return value


def read_integer(value: lanes.Value) -> Any:
    """Return an integer on each rank; TypeError for anything else."""
    if isinstance(value, lanes.Lanes) and value.kind in "bi":
        return value
    if lanes.varies(value) or value.__class__ not in {bool, int}:
        raise TypeError(value)
    return int(value)


def _read_turns(values: lanes.Value) -> Sequence[int]:
    """Return what all ranks count through; TypeError for what is no list of integers."""
    found: Sequence[int] = read_same(values)
    if not isinstance(found, range | list):
        raise TypeError(values)
    if isinstance(found, list) and any(value.__class__ is not int for value in found):
        raise TypeError(values)
    return found


def _numbers(value: lanes.Value) -> lanes.Value:
    """Return a number, or a list of numbers, on each rank; TypeError for anything else."""
    if isinstance(value, lanes.Lanes):
        return value
    return lanes.rowwise(numbers, value) if lanes.varies(value) else numbers(value)


def _is_large(value: lanes.Value) -> bool:
    """Whether a value has tensors, which are made again rather than kept."""
    if isinstance(value, list):
        return any(map(_is_large, value))
    return isinstance(value, lanes.Stack)


def _narrow(value: lanes.Value, active: ActiveRanks) -> lanes.Value:
    return value if active.everyone else lanes.take_rows(value, active.ranks)
