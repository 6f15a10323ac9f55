"""Value expressions -> values on all active ranks at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.errors import ScenarioError
from runner.expressions.evaluator import CANNOT_COMPUTE, numbers, wholes
from runner.expressions.functions import NumpyArrays
from runner.expressions.values import (
    DEFAULT_DTYPE,
    Constant,
    Expression,
    Form,
    PerRank,
    Record,
    Selector,
    Typed,
    names_of,
    roots_of,
)
from runner.limits import Limits
from runner.model.plan import Plan
from runner.model.process import Process
from runner.model.scenario import Step, steps_of
from runner.reference.state import Ledger, size_of
from runner.reference.vector.lanes import (
    EXACT,
    LARGEST,
    Active,
    Beyond,
    Compiler,
    Each,
    Lanes,
    Named,
    Scene,
    Stack,
    Value,
    View,
    calls_of,
    filled,
    leave,
    varies,
)
from runner.reference.vector.state import Memory

# -------------------------------------------------------------------------------------------------
# The program as one row of step instances: loops unrolled, the same for every rank.
#
# A rank takes the instances in order and passes those that do not select it. Where it stands is
# one number, so that the ranks that are furthest behind are known at once.

#: bytes of an instance, and of what its loops' variables are (measured)
INSTANCE_BYTES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One step in one round of its loops; `mask` `[W]` are the ranks that the loops select."""

    number: int
    step: Step
    iteration: tuple[int, ...]
    variables: Mapping[str, int | Named]
    mask: NDArray[np.bool_] | None


class Unrolled:
    """The instances of a program, made as far as ranks have come."""

    def __init__(
        self, steps: tuple[Step, ...], evaluation: Evaluation, world: Active, ledger: Ledger
    ) -> None:
        """Begin before the first step."""
        self._ledger = ledger
        self._evaluation = evaluation
        self._world = world
        self._made: dict[int, Instance] = {}
        self._next = 0
        self._settled = _settled(steps)
        #: whether all ranks are at the instance that is made next
        self._together = True
        #: what `let` names in the outermost list
        self.numbers = {name: Named(world.world_size) for name in evaluation.numbers}
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
        variables: Mapping[str, int | Named],
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
                known |= {name: Named(size) for name in step.numbers}
                yield from self._walk(step.body, (*iteration, value), known, inner)

    def _rounds(self, step: Step, variables: Mapping[str, int | Named]) -> Iterator[int]:
        read = names_of(step.over) & self._evaluation.numbers
        if read and not self._together and not read <= self._evaluation.settled:
            leave("a loop over what some rank has yet to name")
        values = self._evaluation.plain(step.over, variables, self._world)
        if varies(values) or not isinstance(values, list | range):
            leave("a loop that differs from rank to rank")
        for value in values:
            if value.__class__ is not int:
                leave("a loop over what are no integers")
            yield value


def _settled(steps: tuple[Step, ...]) -> frozenset[int]:
    """Return the steps that name numbers which nothing names anew, on every rank."""
    lets = [step for step in steps_of(steps) if _named(step)]
    counts = Counter(name for step in lets for name in _named(step))
    return frozenset(
        step.index
        for step in lets
        if step.ranks is None and all(counts[name] == 1 for name in _named(step))
    )


def let_forms(step: Step) -> Mapping[str, Form]:
    """Return what a `let` names, in order."""
    (form,) = step.arguments.values()
    assert isinstance(form, Record)
    return form.fields


def _named(step: Step) -> tuple[str, ...]:
    return () if step.operation is None else step.operation.numbers(step.arguments)


# -------------------------------------------------------------------------------------------------
# Forms that no closure knows: evaluated rank by rank, as the other engine would, and joined.


class RankByRank:
    """Evaluates forms in a process that becomes one rank after the other."""

    def __init__(self, plan: Plan, arrays: NumpyArrays, memory: Memory) -> None:
        """Hold nothing yet."""
        self._plan = plan
        self._memory = memory
        self.process = Process(plan, 0, arrays, initialise=False)

    def values(self, form: Form, scene: Scene, evaluate: Callable[[], Any]) -> Iterator[Any]:
        """Yield what `evaluate` gives on each active rank. Raises Beyond where it gives nothing."""
        process, names = self.process, names_of(form)
        tensors = [self._memory.columns[name] for name in names & self._memory.columns.keys()]
        missing = (names & self._names_held()) - self._memory.columns.keys()
        groups = names & self._plan.names.keys() or calls_of(form)
        process.scope.update(dict.fromkeys(missing))
        read = {name: value for name, value in scene.variables.items() if name in names}
        named = {name: value for name, value in read.items() if isinstance(value, Named)}
        process.scope.update(read)
        for column in tensors:
            here = scene.active.among(column.held[scene.active.index])
            if self._memory.view(column.name, here).guard is not None:
                leave(f"a part of {column.name} is still being written")
        made = 0
        for rank in scene.active.ranks.tolist():
            process.rank = process.scope["rank"] = rank
            process.scope.update({name: each.of(rank) for name, each in named.items()})
            if any(process.scope[name] is None for name in named):
                leave("a number that some rank has not named")
            if groups:
                self._enter_groups(rank)
            for column in tensors:
                held = column.held[rank]
                process.scope[column.name] = column.values[rank, ...] if held else None
            try:
                value = evaluate()
            except (ScenarioError, *CANNOT_COMPUTE):
                leave("a value that cannot be computed")
            made += size_of(value)
            if made > LARGEST:
                leave("large tensors")
            yield value

    def _names_held(self) -> set[str]:
        return {*self._plan.scenario.tensors, *self._plan.introduced}

    def _enter_groups(self, rank: int) -> None:
        process = self.process
        process.groups.clear()
        for name in self._plan.names:
            group = self._plan.group(name, rank)
            if group is not None:
                process.groups[name] = group
            process.scope[name] = group.listed if group else []


def together(found: Iterator[Any]) -> Value:
    """Return the values of all ranks as one; raises Beyond where they differ in type or shape."""
    values = list(found)
    first = values[0]
    if all(value is None for value in values):
        return None
    if any(value.__class__ is not first.__class__ for value in values):
        leave("values of several types")
    if first.__class__ in {bool, int, float}:
        low, high = min(values), max(values)
        if first.__class__ is int and not -EXACT <= low <= high <= EXACT:
            leave("large integers")
        dtype = {bool: np.bool_, int: np.int64, float: np.float64}[first.__class__]
        return Lanes(np.asarray(values, dtype), low, high)
    if isinstance(first, np.ndarray | np.generic):
        kinds = {(value.shape, value.dtype) for value in values}
        if len(kinds) > 1 or not all(_dense(value) for value in values):
            leave("tensors of several shapes")
        return Stack(np.stack(values))
    if isinstance(first, list) and any(
        each.__class__ is not int for value in values for each in value
    ):
        leave("a list")
    if isinstance(first, str | list | range) and all(value == first for value in values):
        return first
    return leave("values of another type")


def _dense(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.flags.c_contiguous or value.ndim < 2  # noqa: PLR2004


# -------------------------------------------------------------------------------------------------
# Forms -> values on all active ranks at once.
#
# What depends on the rank alone is computed once for all ranks and kept. What the closures of
# :mod:`runner.reference.vector.lanes` do not know is evaluated rank by rank, as the other engine
# would, and put together again.


class Evaluation:
    """Evaluates the forms of one plan."""

    def __init__(self, plan: Plan, arrays: NumpyArrays, memory: Memory, limits: Limits) -> None:
        """Compile nothing yet."""
        self._plan = plan
        self._arrays = arrays
        self._memory = self.memory = memory
        self._limits = limits
        self._functions = arrays.functions()
        #: elements that one expression may make at a time
        self._most = min(limits.max_elements, LARGEST // 16)
        self._begin = self._functions["{"]
        self._compiler = Compiler(plan, self._functions)
        self._closures: dict[int, tuple[Form, Any, bool]] = {}
        self._kept: dict[int, Value] = {}
        self._unkept: set[int] = set()
        self._masks: dict[int, NDArray[np.bool_]] = {}
        self._chosen: dict[int, Active | None] = {}
        self._world = Active(np.arange(plan.world_size), plan.world_size)
        self._ranks = RankByRank(plan, arrays, memory)
        self._process = self._ranks.process
        #: what `let` names, and what of it is the same whenever a rank comes there
        self.numbers = plan.numbers
        self.settled: set[str] = set()
        self._fixed = {"rank", "world_size", *plan.scenario.constants, *plan.names}

    def scene(self, active: Active, variables: Mapping[str, int | Named]) -> Scene:
        """Return where forms are evaluated."""
        return Scene(active, variables, self._memory)

    def lists(self, form: Form, scene: Scene) -> list[list[int]]:
        """Return the list of integers that a form is on each active rank."""
        try:
            value = self.value(form, scene)
        except Beyond:
            value = None
        if isinstance(value, list | range) and not varies(value):
            return [wholes(value)] * scene.active.size
        found = self._ranks.values(form, scene, lambda: self._process.evaluate(form))
        try:
            return [wholes(each) for each in found]
        except CANNOT_COMPUTE:
            leave("what is no list of integers")

    # ------------------------------------------------------------------ what `let` names

    def settle(self, step: Step, world: Active, variables: Mapping[str, int | Named]) -> None:
        """Name, before any rank comes there, what depends on no tensor and is named once."""
        for name, form in let_forms(step).items():
            known = self._fixed | (variables.keys() - self.numbers) | self.settled
            if not names_of(form) <= known:
                return
            self.settled.discard(name)
            try:
                self.let(name, form, self.scene(world, variables))
            except Beyond:
                return
            self.settled.add(name)

    def let(self, name: str, form: Form, scene: Scene) -> None:
        """Name a number on the active ranks; raises Beyond where one has none."""
        if name in self.settled:
            return
        named = scene.variables[name]
        assert isinstance(named, Named)
        try:
            value = self.value(form, scene)
            if isinstance(value, Stack | View):
                value = together(map(numbers, list(value.take())))
            elif not isinstance(value, Lanes):
                value = numbers(value)
        except (Beyond, *CANNOT_COMPUTE):
            found = self._ranks.values(form, scene, lambda: self._process.evaluate(form))
            try:
                each = [numbers(value) for value in found]
            except CANNOT_COMPUTE:
                leave("what is no number")
            value = Each(each)
            if all(one.__class__ in {bool, int, float} for one in each):
                value = together(iter(each))
        named.assign(scene.active, value)

    # ------------------------------------------------------------------ plain values

    def value(self, form: Form | None, scene: Scene) -> Value:
        """Return what a form is worth on the active ranks; None where it is nothing on all."""
        if form is None:
            return None
        if isinstance(form, Constant):
            return form.value
        key = id(form)
        if key in self._kept:
            return _narrowed(self._kept[key], scene.active)
        if key not in self._unkept and self._is_fixed(form):
            try:
                found = self._value(form, Scene(self._world, {}, self._memory))
            except Beyond:
                found = None
            if found is not None and (isinstance(found, Lanes) or not varies(found)):
                self._kept[key] = found
                return _narrowed(found, scene.active)
            self._unkept.add(key)
        return self._value(form, scene)

    def _value(self, form: Form, scene: Scene) -> Value:
        if isinstance(form, Expression):
            try:
                return self._closure(form)(scene)
            except (Beyond, *CANNOT_COMPUTE):
                pass
        elif isinstance(form, PerRank):
            parts = list(self.branches(form, scene))
            if len(parts) == 1 and parts[0][0].size == scene.active.size:
                return self.value(parts[0][1], scene)
        return together(self._ranks.values(form, scene, lambda: self._process.evaluate(form)))

    def _closure(self, form: Expression) -> Callable[[Scene], Value]:
        found = self._closures.get(id(form))
        if found is None:
            found = (form, self._compiler.compile(form.text), False)
            self._closures[id(form)] = found
        self._begin(self._most, self._limits.max_items)
        closure: Callable[[Scene], Value] = found[1]
        return closure

    def _is_fixed(self, form: Form) -> bool:
        return names_of(form) <= self._fixed

    def plain(
        self, form: Form | None, variables: Mapping[str, int | Named], world: Active
    ) -> Value:
        """Return what a form is worth on every rank before any of them gets there.

        Raises Beyond where it looks at a tensor.
        """
        if form is not None and not names_of(form) <= self._fixed | variables.keys():
            leave("a loop that depends on a tensor")
        return self.value(form, self.scene(world, variables))

    # ------------------------------------------------------------------ selectors

    def selected(self, selector: Selector, scene: Scene) -> Active | None:
        """Return the active ranks that a selector selects; None where it selects none."""
        key, active = id(selector), scene.active
        if active.everyone and key in self._chosen:
            return self._chosen[key]
        fixed = self._is_fixed(selector.form)
        if fixed and key not in self._masks:
            try:
                self._masks[key] = self._mask(selector, self.scene(self._world, {}))
            except Beyond:
                fixed = False
        mask = self._masks[key][active.index] if fixed else self._mask(selector, scene)
        chosen = active.among(mask) if mask.any() else None
        if fixed and active.everyone:
            self._chosen[key] = chosen
        return chosen

    def before_all(
        self, selector: Selector, variables: Mapping[str, int | Named], world: Active
    ) -> NDArray[np.bool_]:
        """Return the ranks `[W]` that a selector selects before any of them gets there."""
        if not names_of(selector.form) <= self._fixed | variables.keys():
            leave("a loop that depends on a tensor")
        return self._mask(selector, self.scene(world, variables))

    def _mask(self, selector: Selector, scene: Scene) -> NDArray[np.bool_]:
        form, ranks = selector.form, scene.active.ranks
        if isinstance(form, Expression) and form.text.strip() in self._plan.names:
            return np.asarray(self._memory.group_ranks(form.text.strip())[scene.active.index] >= 0)
        try:
            value = self._value(form, scene) if not isinstance(form, Constant) else form.value
        except Beyond:
            return np.fromiter(
                self._ranks.values(form, scene, lambda: self._process.selects(selector)), np.bool_
            )
        if value.__class__ is bool:
            return np.full(len(ranks), value)
        if value.__class__ is int:
            return np.asarray(ranks == value)
        if isinstance(value, list | range) and all(each.__class__ is int for each in value):
            return np.isin(ranks, np.asarray(list(value), np.int64))
        if isinstance(value, Lanes) and value.kind in "bi":
            return value.values if value.kind == "b" else np.asarray(value.values == ranks)
        if isinstance(value, Stack | View) and value.shape == () and value.dtype == np.bool_:
            return value.take()
        return leave("a selector")

    def branches(self, form: PerRank[Any], scene: Scene) -> Iterator[tuple[Active, Any]]:
        """Yield who of the active ranks takes which branch, those of none with None."""
        left = scene.active
        for selector, value in form.branches:
            chosen = self.selected(selector, Scene(left, scene.variables, self._memory))
            if chosen is None:
                continue
            yield chosen, value
            if chosen.size == left.size:
                return
            left = left.among(~np.isin(left.ranks, chosen.ranks))
        yield left, form.otherwise

    # ------------------------------------------------------------------ tensors

    def tensor(self, form: Form, scene: Scene, dtype: str | None = None) -> Value:
        """Return the tensor that a form is on the active ranks; an array where it is one for all.

        As :meth:`runner.expressions.evaluator.Evaluator.tensor_value`; None where it is none on
        all of them.
        """
        try:
            return self._tensor(form, scene, dtype)
        except (Beyond, *CANNOT_COMPUTE):
            found = self._ranks.values(
                form, scene, lambda: self._process.tensor_value(form, dtype=dtype)
            )
            return together(found)

    def argument(self, form: Form | None, scene: Scene) -> Stack | View:
        """Return a tensor argument; raises Beyond where it shares memory in a way unknown here."""
        if form is None:
            leave("a tensor that is left out")
        value = self.tensor(form, scene)
        if isinstance(value, np.ndarray):
            value = Stack(np.broadcast_to(value, (scene.active.size, *value.shape)))
        if not isinstance(value, Stack | View):
            leave("a tensor with no value")
        if isinstance(value, Stack) and roots_of(form):
            leave("a tensor that shares memory")
        if isinstance(value, View):
            value.guard = None  # what the call reads of it, its flights tell
        return value

    def stored(self, form: Form, scene: Scene) -> Stack | np.ndarray[Any, Any]:
        """Return what is stored into a part of a tensor: numbers are as wide as they can be."""
        if isinstance(form, Expression | Constant):
            value = self.value(form, scene)
            if isinstance(value, Lanes):
                return Stack(value.values)
            if value.__class__ in {bool, int, float, complex}:
                return np.asarray(value)
        found = self.tensor(form, scene)
        if isinstance(found, View):
            return Stack(np.array(found.take()))
        if not isinstance(found, Stack | np.ndarray):
            leave("what is stored into a part")
        return found

    def fitted(
        self, value: Stack | np.ndarray[Any, Any], part: View, size: int
    ) -> np.ndarray[Any, Any]:
        """Return a value `[L, *shape]` broadcast to a part, in its dtype; as `copy_` casts."""
        found = value.values if isinstance(value, Stack) else value[np.newaxis]
        missing = len(part.shape) - (found.ndim - 1)
        if missing < 0:
            leave("a value that does not fit")
        aligned = found.reshape(len(found), *(1,) * missing, *found.shape[1:])
        shape = (size, *part.shape)
        if any(one not in {1, whole} for one, whole in zip(aligned.shape, shape, strict=True)):
            leave("a value that does not fit")
        dtype = self._arrays.dtype(np.empty(0, part.dtype))
        cast: np.ndarray[Any, Any] = np.array(
            np.broadcast_to(self._functions["astype()"](aligned, dtype), shape)
        )
        return cast

    def _tensor(self, form: Form, scene: Scene, dtype: str | None) -> Value:
        if isinstance(form, Typed):
            stated = self.value(form.dtype, scene)
            shape = self.value(form.shape, scene)
            if form.value is None or varies(shape) or varies(stated):
                leave("a shape that differs")
            made = self._tensor(form.value, scene, stated or dtype)
            return made if shape is None else self._shaped(made, shape)
        if isinstance(form, Expression):
            return self._converted(self._closure(form)(scene), dtype)
        if isinstance(form, Constant):
            return self._converted(form.value, dtype)
        if isinstance(form, PerRank):
            parts = list(self.branches(form, scene))
            if len(parts) == 1 and parts[0][1] is not None:
                return self._tensor(parts[0][1], scene, dtype)
        return leave("a form")

    def _converted(self, value: Value, dtype: str | None) -> Value:
        if isinstance(value, Lanes):
            return filled(self._functions, [], value, dtype or DEFAULT_DTYPE)
        if isinstance(value, Stack | View):
            if dtype is None or self._arrays.dtype(np.empty(0, value.dtype)) == dtype:
                return value
            return Stack(self._arrays.array(value.take(), dtype))
        if varies(value) or value is None:
            leave("a list of tensors")
        made = self._process.tensor_value(Constant(value=value), dtype=dtype)
        if not isinstance(made, np.ndarray | np.generic):
            leave("a list of tensors")
        return np.asarray(made)

    def _shaped(self, value: Value, shape: Any) -> Value:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if isinstance(value, np.ndarray):
            return np.asarray(self._arrays.reshaped(value, sizes))
        return leave("a shape")


def _narrowed(value: Value, active: Active) -> Value:
    if isinstance(value, Lanes) and not active.everyone:
        return Lanes(value.values[active.ranks], value.low, value.high)
    return value
