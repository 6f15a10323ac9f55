"""One rank's program: the plan projected onto a rank, step by step, arguments evaluated.

Both executors drive the same :class:`Process`, the reference one for every rank on NumPy, the
worker one on torch; only the :class:`Arrays` they hand in differ. A process evaluates and
remembers; it communicates nothing, and it learns nothing of other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from runner.nesting import DEFAULT_DTYPE, DEPTHS, data_at, has_depth, wrong_value
from runner.operations.base import Entry, Undefined
from runner.plan import WORLD, Group
from runner.problems import Problem, ScenarioError
from runner.scenario import (
    Constant,
    Expression,
    ListForm,
    Objects,
    PerRank,
    Record,
    Selector,
    Typed,
    steps_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runner.operations.base import Operation
    from runner.operations.params import Param
    from runner.plan import Plan
    from runner.problems import Mark
    from runner.scenario import Form, Step

#: what the guarded operations of an expression, NumPy and torch raise for a value that cannot be
CANNOT_COMPUTE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Arrays(Protocol):
    """The array library of one executor. Dtypes are named as torch names them."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions of the expression language under `name()`, freshly copied."""

    def array(self, data: Any, dtype: str) -> Any:  # noqa: ANN401
        """Make an array from a number, a nested list or an array; the result is a fresh copy."""

    def copy(self, value: Any) -> Any:  # noqa: ANN401
        """Return an array that shares no memory with `value` and keeps its dtype and strides."""

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""

    def dtype(self, value: Any) -> str:  # noqa: ANN401
        """Return the name of the dtype of an array."""

    def reshaped(self, value: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        """Return `value` in another shape; a single element fills the shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
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

    @property
    def label(self) -> str:
        """The name that reports and `blocked:` use: the step's own, else the operation's."""
        if self.step.name is not None:
            return self.step.name
        return self.operation.label(self.entry) if self.operation else "expect"

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the held tensors that this call may store into, sorted."""
        if self.operation is None:
            return ()
        stored = self.operation.written(self.entry, self.roots)
        return tuple(sorted(stored.union(self.operation.introduces(self.step))))

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


class Process:
    """The state of one rank: what it holds, which groups it knows, where it is."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        arrays: Arrays,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        initialise: bool = True,
    ) -> None:
        """Bind constants, groups and initial values; `functions` replace or add names.

        Raises ScenarioError where an initial value cannot be computed.
        """
        self.plan = plan
        self.rank = rank
        self.arrays = arrays
        self.groups: dict[str, Group] = {}
        self.held: set[str] = set()
        #: names whose value an operation left undefined, or is still writing
        self.undefined: dict[str, Undefined] = {}
        #: the undefined values that were read since this list was last emptied
        self.undefined_reads: list[tuple[str, Undefined]] = []
        self.handles: set[str] = set()
        self.scope: dict[str, Any] = {
            **arrays.functions(),
            "group_rank()": self.group_rank,
            "group_size()": self.group_size,
            "group_ranks()": self.group_ranks,
            **(functions or {}),
            "__builtins__": {},
            **plan.scenario.constants,
            "rank": rank,
            "world_size": plan.world_size,
        }
        for name in plan.names:
            group = plan.group(name, rank)
            if group is not None:
                self.groups[name] = group
            self.scope[name] = group.listed if group else []
        if initialise:
            self._initialise()

    # ------------------------------------------------------------------ what it holds

    def _initialise(self) -> None:
        scenario = self.plan.scenario
        for step in steps_of(scenario.steps):
            if step.operation is not None:
                for name in step.operation.introduces(step):
                    self.scope.setdefault(name, None)
        for name in (*scenario.tensors, *scenario.objects):
            self.scope[name] = None
        for name, form in scenario.objects.items():
            value = self.evaluate(form)
            if value is not None:
                self.hold(name, value)
        for name, form in scenario.tensors.items():
            value = self.tensor_value(form, dtype=DEFAULT_DTYPE)
            if value is not None:
                self._guarded(partial(self.assign, name, value), form.mark)

    def hold(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Let `name` hold `value` itself, without a copy."""
        self.scope[name] = value
        self.held.add(name)
        self.undefined.pop(name, None)

    def compute(self, name: str, form: Form) -> None:
        """Let `name` hold a copy of the form's value; undefined if what it was made of is."""
        noted = len(self.undefined_reads)
        value = self.tensor_value(form, dtype=None)
        self._guarded(lambda: self.assign(name, value), form.mark)
        if len(self.undefined_reads) > noted:
            self.undefined[name] = self.undefined_reads[-1][1]

    def assign(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Let `name` hold a copy of `value`: an array, a list of arrays or a number."""
        if isinstance(value, list):
            self.hold(name, [self.arrays.copy(self._as_array(item)) for item in value])
        else:
            self.hold(name, self.arrays.copy(self._as_array(value)))

    def _as_array(self, value: Any) -> Any:  # noqa: ANN401
        return value if self.arrays.is_array(value) else self.arrays.array(value, DEFAULT_DTYPE)

    # ------------------------------------------------------------------ evaluation

    def evaluate(self, form: Form | None) -> Any:  # noqa: ANN401 -- a value has any type
        """Return the value of a form on this rank now; None where it has no value here.

        Raises ScenarioError where it cannot be computed. A read of a value that an operation left
        undefined is noted in `undefined_reads`; it goes on with whatever is there.
        """
        match form:
            case None:
                return None
            case Constant():
                return form.value
            case Expression():
                if self.undefined:
                    self._note_undefined(form)
                return self._compute(form)
            case ListForm():
                return [self.evaluate(item) for item in form.items]
            case Record():
                return {name: self.evaluate(item) for name, item in form.fields.items()}
            case PerRank():
                return self.evaluate(self.choose(form))
            case Typed():
                return self.tensor_value(form, dtype=None)
            case Objects():
                return self._tree(form.tree)

    def _tree(self, tree: Any) -> Any:  # noqa: ANN401
        if isinstance(tree, Expression):
            return self.evaluate(tree)
        if isinstance(tree, dict):
            return {key: self._tree(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return [self._tree(value) for value in tree]
        return tree

    def _note_undefined(self, form: Expression) -> None:
        for name in sorted(form.names & self.undefined.keys()):
            self.undefined_reads.append((name, self.undefined[name]))

    def _compute(self, form: Expression) -> Any:  # noqa: ANN401
        try:
            return form.evaluate(self.scope)
        except CANNOT_COMPUTE as error:
            raise ScenarioError([cannot_compute(form.text, form.mark, self.rank, error)]) from error

    def choose(self, form: PerRank[Any]) -> Any:  # noqa: ANN401
        """Return the value of the first branch that selects this rank, else `otherwise`."""
        for selector, value in form.branches:
            if self.selects(selector):
                return value
        return form.otherwise

    def selects(self, selector: Selector) -> bool:
        """Return whether a selector selects this rank: a boolean, a rank or some ranks."""
        value = self.evaluate(selector.form)
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value == self.rank
        if isinstance(value, list | tuple | range | set | frozenset):
            return self.rank in value
        if self.arrays.is_array(value) and not tuple(value.shape):
            return bool(value) if self.arrays.dtype(value) == "bool" else int(value) == self.rank
        message = f"the selector {selector.text!r} is neither a boolean, a rank nor a list of ranks"
        raise ScenarioError([Problem(code="bad_selector", message=message, mark=selector.mark)])

    def tensor_value(self, form: Form | None, *, dtype: str | None) -> Any:  # noqa: ANN401
        """Return a tensor, or a list of tensors, from any form of value; None if it has none here.

        `dtype` is cast to where the form states none; None keeps what an expression yields and
        makes float32 of data. An array that an expression yields is not copied.
        """
        match form:
            case PerRank():
                return self.tensor_value(self.choose(form), dtype=dtype)
            case Typed():
                stated = self.evaluate(form.dtype)
                shape = self.evaluate(form.shape)
                value = self.tensor_value(form.value, dtype=stated or dtype)
                if shape is None or value is None:
                    return value
                sizes = (shape,) if isinstance(shape, int) else tuple(shape)
                return self._guarded(lambda: self.arrays.reshaped(value, sizes), form.mark)
            case ListForm():
                values = [self.tensor_value(item, dtype=dtype) for item in form.items]
                if any(self.arrays.is_array(item) and tuple(item.shape) for item in values):
                    return values
                return self._converted([self._item(value) for value in values], dtype, form.mark)
            case _:
                value = self.evaluate(form)
                mark = form.mark if form is not None else None
                return value if value is None else self._converted(value, dtype, mark)

    def _item(self, value: Any) -> Any:  # noqa: ANN401
        return value.item() if self.arrays.is_array(value) else value

    def _converted(self, value: Any, dtype: str | None, mark: Mark | None) -> Any:  # noqa: ANN401
        arrays = self.arrays
        if arrays.is_array(value):
            if dtype is None or arrays.dtype(value) == dtype:
                return value
        elif isinstance(value, list) and any(arrays.is_array(item) for item in value):
            return [self._converted(item, dtype, mark) for item in value]
        elif isinstance(value, range):
            value = list(value)
        return self._guarded(lambda: arrays.array(value, dtype or DEFAULT_DTYPE), mark)

    def _guarded(self, make: Callable[[], Any], mark: Mark | None) -> Any:  # noqa: ANN401
        try:
            return make()
        except CANNOT_COMPUTE as error:
            raise ScenarioError([cannot_compute("this value", mark, self.rank, error)]) from error

    def evaluate_argument(self, param: Param, form: Form | None) -> Any:  # noqa: ANN401
        """Return an argument in the type of its kind (see :data:`params.KINDS`).

        A tensor argument may be undefined: what of it the operation reads, the caller knows.
        """
        if form is None:
            return param.default
        if param.kind in {"tensor", "tensors", "tensor_lists"}:
            hidden, self.undefined = self.undefined, {}
            try:
                value = self._tensor_argument(param.kind, form)
            finally:
                self.undefined = hidden
            if not has_depth(self.arrays, value, DEPTHS[param.kind]):
                raise ScenarioError([wrong_value(param, form.mark, self.rank)])
            return value
        value = self.evaluate(form)
        if value is None:
            return param.default
        if param.kind in {"rank", "group_rank", "tag"}:
            return self._guarded(lambda: int(value), form.mark)
        if param.kind in {"sizes", "ranks"}:
            return self._guarded(lambda: [int(item) for item in value], form.mark)
        if param.kind == "seconds":
            return self._guarded(lambda: float(value), form.mark)
        return value

    def _tensor_argument(self, kind: str, form: Form) -> Any:  # noqa: ANN401
        if kind == "tensor":
            return self.tensor_value(form, dtype=None)
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        if isinstance(chosen, ListForm):
            inner = "tensor" if kind == "tensors" else "tensors"
            return [self._tensor_argument(inner, item) for item in chosen.items]
        if isinstance(chosen, Constant) and isinstance(chosen.value, list):
            make = partial(data_at, self.arrays, DEPTHS[kind], chosen.value)
            return self._guarded(make, chosen.mark)
        return self.evaluate(chosen)

    def roots(self, form: Form | None) -> frozenset[str]:
        """Return the names of the held tensors whose storage the form's value may share here."""
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        return roots_of(chosen) & self.held

    # ------------------------------------------------------------------ groups

    def group(self, name: str | None) -> Group:
        """Return the group that a name means here; a group of others where this rank has none."""
        name = WORLD if name is None else name
        if name in self.groups:
            return self.groups[name]
        others = self.plan.names.get(name, ())
        if others:
            return others[0]
        return Group(key=name, name=name, ranks=(), timeout_s=self.plan.scenario.timeout_s)

    def join(self, group: Group) -> None:
        """Learn a group that was created while the program ran."""
        self.scope[group.name] = list(group.ranks) if self.rank in group.ranks else []
        if self.rank in group.ranks:
            self.groups[group.name] = group

    def leave(self, name: str) -> None:
        """Forget a group that was destroyed."""
        self.groups.pop(name, None)

    def group_rank(self, name: str) -> int:
        """Return `group_rank(name)`: -1 outside."""
        return self.group(name).group_rank(self.rank)

    def group_size(self, name: str) -> int:
        """Return `group_size(name)`: 0 outside."""
        return self.group(name).size if name in self.groups else 0

    def group_ranks(self, name: str) -> list[int]:
        """Return `group_ranks(name)`: world ranks in group order; empty outside."""
        return list(self.groups[name].ranks) if name in self.groups else []

    # ------------------------------------------------------------------ the program

    def walk(self) -> Iterator[Call]:
        """Yield this rank's calls in program order; what a call does must be done before the next.

        Raises ScenarioError where a selector or an argument cannot be computed.
        """
        yield from self._walk(self.plan.scenario.steps, ())

    def _walk(self, steps: tuple[Step, ...], iteration: tuple[int, ...]) -> Iterator[Call]:
        for step in steps:
            if step.variable is not None:
                yield from self._repeat(step, iteration)
            else:
                call = self._call(step, iteration)
                if call is not None:
                    yield call

    def _repeat(self, step: Step, iteration: tuple[int, ...]) -> Iterator[Call]:
        if step.ranks is not None and not self.selects(step.ranks):
            return
        assert step.variable is not None  # noqa: S101 -- only a `for` comes here
        values = self.evaluate(step.over)
        try:
            counted = [int(value) for value in values]
        except (TypeError, ValueError) as error:
            text = f"`for {step.variable}`"
            raise ScenarioError([cannot_compute(text, step.mark, self.rank, error)]) from error
        for value in counted:
            self.scope[step.variable] = value
            yield from self._walk(step.body, (*iteration, value))

    def _call(self, step: Step, iteration: tuple[int, ...]) -> Call | None:
        operation = step.operation
        if step.ranks is not None and not self.selects(step.ranks):
            return None
        if operation is None:
            return Call(step=step, iteration=iteration, operation=None, entry=self._entry({}))
        group = self.group(operation.group_of(self, step))
        if step.ranks is None and group.group_rank(self.rank) < 0:
            return None
        if not operation.concerns(self, step):
            return None
        arguments = operation.evaluate(self, step)
        return Call(
            step=step,
            iteration=iteration,
            operation=operation,
            entry=Entry(rank=self.rank, group=group, arguments=arguments),
            roots=operation.roots(self, step),
        )

    def _entry(self, arguments: dict[str, Any]) -> Entry:
        return Entry(rank=self.rank, group=self.group(WORLD), arguments=arguments)

    def observe(self, step: Step) -> dict[str, Any]:
        """Evaluate the keys of the step's expectations that are more than a name, by their text.

        What a key asks `before(x, r)` of other ranks only the judge can say.
        """
        if step.expect is None:
            return {}
        keys = (value.key for value in step.expect.values if not value.key.before)
        return {
            key.text: self._kept(self.evaluate(key)) for key in keys if key.text not in self.scope
        }

    def _kept(self, value: Any) -> Any:  # noqa: ANN401
        """Return a value that later steps cannot change: a key such as `x[0]` is a view."""
        if isinstance(value, list):
            return [self._kept(item) for item in value]
        return self.arrays.copy(value) if self.arrays.is_array(value) else value


def roots_of(form: Form | None) -> frozenset[str]:
    """Return the names whose storage the value of a form may share."""
    match form:
        case Expression():
            return form.roots
        case ListForm():
            return frozenset().union(*(roots_of(item) for item in form.items))
        case Record():
            return frozenset().union(*(roots_of(item) for item in form.fields.values()))
        case PerRank():
            parts = [roots_of(item) for _, item in form.branches]
            return frozenset().union(*parts, roots_of(form.otherwise))
        case _:
            return frozenset()


def cannot_compute(what: str, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for an expression that has no value on a rank."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return Problem(
        code="cannot_compute",
        message=f"{what} cannot be computed on rank {rank}: {reason}",
        mark=mark,
    )
