"""Value expressions -> values of the type that a place wants, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isinf, isnan, prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Mark, Problem, ScenarioError
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import (
    DEFAULT_DTYPE,
    DEPTHS,
    Constant,
    Expression,
    Form,
    ListForm,
    Objects,
    PerRank,
    Record,
    Selector,
    TypedValue,
    Undefined,
    data_at,
    expressions_in,
    has_depth,
    wrong_value,
)

# -------------------------------------------------------------------------------------------------
# The problems of a value that is computed, and is not what its place wants.


def cannot_compute(what: str, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for an expression that has no value on a rank."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return Problem(
        code="cannot_compute",
        message=f"{what} cannot be computed on rank {rank}: {reason}",
        mark=mark,
    )


def unknown_on_rank(form: Expression, name: str, rank: int) -> Problem:
    """Return the problem for an expression over a number that `let` has not named on a rank."""
    return Problem(
        code="unknown_on_rank",
        message=f"`{form.text.strip()}` reads `{name}`, which rank {rank} has not named",
        mark=form.mark,
        hint=f"let each rank that reads `{name}` take a `let` that names it; `ranks:` selects both",
    )


def valueless(form: Expression, made: Mapping[str, Mark | None], rank: int) -> Problem:
    """Return the problem for an expression over names that have no value on a rank.

    `made` maps each to the place of the first step that gives it a value, if one does.
    """
    later = {
        name: mark.line
        for name, mark in made.items()
        if mark is not None and form.mark is not None and mark.line >= form.mark.line
    }
    names = " and ".join(f"`{name}`" for name in made) or "a name in it"
    has = "have" if len(made) > 1 else "has"
    reason = f"{names} {has} no value there"
    hint = "select the ranks that hold it with `ranks:`, or add an `else` where it is made"
    if later:
        name, line = next(iter(later.items()))
        reason += f"; `{name}` is made further down (line {line})"
        hint = f"make `{name}` before, or give it a value under `tensors:`"
    return Problem(
        code="cannot_compute",
        message=f"`{form.text.strip()}` cannot be computed on rank {rank}: {reason}",
        mark=form.mark,
        hint=hint,
    )


def wrong_argument(param: Param, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for an argument whose value is not of its kind."""
    return Problem(
        code="wrong_type",
        message=f"`{param.name}` has no usable value on rank {rank}: {error}",
        mark=mark,
        hint=f"`{param.name}`: {param.description}",
    )


def no_number(name: str, mark: Mark | None, rank: int, error: Exception) -> Problem:
    """Return the problem for a `let` of what is no number, and no list of numbers."""
    return Problem(
        code="wrong_type",
        message=f"`let` cannot name this `{name}` on rank {rank}: {error}",
        mark=mark,
        hint="`let:` names numbers and lists of numbers; `compute:` gives a tensor a name",
    )


def no_part(target: Expression, rank: int) -> Problem:
    """Return the problem for a store into what is no part of a tensor, but a copy."""
    return Problem(
        code="output_not_a_name",
        message=f"`{target.text.strip()}` is not a part of a tensor on rank {rank}, so nothing "
        "keeps what is stored",
        mark=target.mark,
        hint="a part by integers and slices is stored into: `x[2:4]`; a list or a mask copies",
    )


def refuse_store(mark: Mark | None, rank: int) -> Problem:
    """Return the problem for a store of what is neither a tensor nor numbers."""
    return Problem(
        code="cannot_compute",
        message=f"there is no tensor and no number to store on rank {rank}",
        mark=mark,
        hint="select the ranks that have one with `ranks:`, or add an `else`",
    )


def not_given(param: Param, mark: Mark | None, rank: int) -> Problem:
    """Return the problem for a required argument that a rank has no value for."""
    return Problem(
        code="missing_argument",
        message=f"`{param.name}` has no value on rank {rank}",
        mark=mark,
        hint="select who takes the step with `ranks:`, or add an `else`",
    )


def no_selector(selector: Selector, value: Any) -> Problem:
    """Return the problem for a selector whose value selects no rank, or every rank."""
    hint = "write a condition such as `rank % 2 == 0`, a rank, or a list of ranks"
    if isinstance(value, float):
        hint = "`//` divides integers"
    elif hasattr(value, "shape"):
        hint = "look at one of its elements: `x[0] > 3`"
    return Problem(
        code="bad_selector",
        message=f"the selector `{selector.text}` is neither a boolean, a rank nor a list of ranks",
        mark=selector.mark,
        hint=hint,
    )


def not_countable(
    variable: str,
    values: Any,
    mark: Mark | None,
    rank: int,
    error: Exception,
) -> Problem:
    """Return the problem for a `for` over what is no list of integers."""
    if isinstance(values, bool | int | float):
        message = f"`for {variable}` cannot run over the number {values} on rank {rank}"
        return Problem(
            code="bad_loop", message=message, mark=mark, hint="`range(n)` counts from 0 to n - 1"
        )
    if values is None:
        reason = f"has nothing to run over on rank {rank}"
    else:
        reason = f"cannot run over this on rank {rank}: {error}"
    return Problem(
        code="bad_loop",
        message=f"`for {variable}` {reason}",
        mark=mark,
        hint='a loop runs over integers: `"range(3)"`, `[0, 2]`',
    )


# -------------------------------------------------------------------------------------------------
# What an expression yields, as an operation takes it: whole numbers, flags, seconds, lists.
#
# A tensor of one element stands for its number. Nothing is rounded: a rank of 0.7 is a mistake,
# and no rank 0.

#: the longest sleep, or timeout, in seconds: a file must not keep a machine busy for days
LONGEST_S = 3600.0


def take_integer(value: Any) -> int:
    """Return an integer; TypeError or ValueError where the value is not one."""
    if value.__class__ is int:
        return int(value)
    number = _number(value)
    if number.__class__ is float and not number.is_integer():
        message = f"{number:g} is not an integer; `//` divides integers"
        raise ValueError(message)
    return int(number)


def wholes(values: Any) -> list[int]:
    """Return a list of integers; TypeError or ValueError where an item is not one."""
    if values.__class__ is range:
        return list(values)
    if not isinstance(values, Iterable):
        message = f"{values!r} is not a list"
        raise TypeError(message)
    return [take_integer(value) for value in values]


def flag(value: Any) -> bool:
    """Return true or false; TypeError or ValueError for what is neither."""
    if value.__class__ is bool:
        return bool(value)
    number = _number(value)
    if number not in {0, 1}:
        message = f"{number} is neither true nor false"
        raise ValueError(message)
    return bool(number)


def seconds(value: Any) -> float:
    """Return a duration; ValueError where no time can last so long."""
    number = float(_number(value))
    if isnan(number) or isinf(number) or number < 0:
        message = f"a duration is zero or more seconds, not {number:g}"
        raise ValueError(message)
    if number > LONGEST_S:
        message = f"a duration is at most an hour, not {number:g} s"
        raise ValueError(message)
    return number


def numbers(value: Any) -> Any:
    """Return a number, or a list of numbers, as Python's own; TypeError for anything else.

    A tensor of one element stands for its number.
    """
    if isinstance(value, list | tuple | range):
        return [_take_number(item) for item in value]
    return _take_number(value)


def _take_number(value: Any) -> Any:
    found = value.item() if hasattr(value, "item") and prod(value.shape) == 1 else value
    if isinstance(found, bool | int | float | complex):
        return found
    if hasattr(found, "shape"):
        shown = f"a tensor of shape {list(found.shape)}"
        if not found.shape or prod(found.shape) == 1:
            return float(found)  # bfloat16 and float8 are types of their own
    elif isinstance(found, list | tuple | range):
        shown = "a list inside of a list"
    elif hasattr(found, "__float__"):
        return float(found)
    else:
        shown = "a word" if isinstance(found, str) else repr(found)
    message = f"{shown} is not a number"
    raise TypeError(message)


def require_list(value: Any) -> list[Any]:
    """Return a list itself, for an operation may store into it; TypeError for anything else."""
    if not isinstance(value, list):
        message = f"{value!r} is not a list"
        raise TypeError(message)
    return value


def _number(value: Any) -> Any:
    found = value
    if hasattr(value, "item"):
        count = prod(value.shape)
        if count != 1:
            message = f"a tensor of {count} elements is not a number"
            raise TypeError(message)
        found = value.item()
        if not isinstance(found, bool | int | complex):
            found = float(found)  # bfloat16 and float8 are types of their own
    if not isinstance(found, bool | int | float):
        shown = "a list" if isinstance(found, list | tuple | range) else repr(found)
        message = f"{shown} is not a number"
        raise TypeError(message)
    return found


#: key of a batch -> how its value is read; all others are integers
_OF_BATCH: dict[str, Callable[[Any], Any]] = {
    "group": str,
    "sizes": wholes,
    "shuffle": flag,
    "drop_last": flag,
    "DistributedSampler": flag,
}


def read_batch(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a batch is cut: its sizes and numbers as integers, and no key without a value.

    TypeError or ValueError where one is no integer.
    """
    found: dict[str, Any] = {"group": None}
    for name, value in given.items():
        read: Callable[[Any], Any] = _OF_BATCH.get(name, take_integer)
        if value is not None:
            found[name] = read(value)
    return found


#: kind of argument (see :data:`torch_scenarios.expressions.params.KINDS`) -> how its value is read
READ: dict[str, Callable[[Any], Any]] = {
    "rank": take_integer,
    "group_rank": take_integer,
    "tag": take_integer,
    "sizes": wholes,
    "ranks": wholes,
    "flag": flag,
    "seconds": seconds,
    "objects": require_list,
    "batch": read_batch,
}


# -------------------------------------------------------------------------------------------------
# Whether what an expression yields depends on some elements of the tensors that it reads.
#
# The elements are filled with values that are far apart, and the expression is computed with each:
# where it always comes to the same, it relies on none of them. `sum(x[2:4])` does not depend on
# `x[0:2]`, nor does `x[3]`; `max(x)` does, whatever `x[0:2]` holds at the moment.

if TYPE_CHECKING:
    Memory: TypeAlias = tuple[NDArray[Any], ...]


def depends(form: Expression, scope: Mapping[str, Any], memory: Memory) -> bool:
    """Return whether the value of `form` in `scope` depends on the elements of `memory`.

    `memory` are views of what `scope` holds; it is left as it was. What cannot be computed with
    every filling does depend.
    """
    kept = [part.copy() for part in memory]
    try:
        with np.errstate(all="ignore"):
            return _differ(form, scope, memory)
    finally:
        for part, value in zip(memory, kept, strict=True):
            part[...] = value


def shares(value: Any, held: Any) -> bool:
    """Return whether a value is, or shares an element with, what is held."""
    if isinstance(held, list):
        return value is held or any(shares(value, item) for item in held)
    if isinstance(value, list):
        return any(shares(item, held) for item in value)
    arrays = isinstance(value, np.ndarray) and isinstance(held, np.ndarray)
    return value is held or (arrays and np.may_share_memory(value, held))


def is_empty(value: Any) -> bool:
    """Return whether a value is made of arrays without elements: it relies on nothing."""
    if isinstance(value, list):
        return bool(value) and all(map(is_empty, value))
    return isinstance(value, np.ndarray) and value.size == 0


def _differ(form: Expression, scope: Mapping[str, Any], memory: Memory) -> bool:
    found: list[Any] = []
    for fillings in zip(*(_fillings(part.dtype) for part in memory), strict=True):
        for part, value in zip(memory, fillings, strict=True):
            part[...] = value
        try:
            found.append(_bits(form.evaluate(scope)))
        except Exception:  # noqa: BLE001 -- any function of the language, given anything
            return True
    return any(each != found[0] for each in found[1:])


def _fillings(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    """Return the least and the greatest value of a dtype, and one between."""
    if dtype.kind == "b":
        return False, True, True
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return bounds.min, bounds.max, 1
    return tuple(np.array([-np.inf, np.inf, 1.0]).astype(dtype))


def _bits(value: Any) -> Any:
    """Return what tells a value from others, copied."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    return repr(value)


# -------------------------------------------------------------------------------------------------
# Forms -> values, on one rank now: what a scenario writes, in the arrays of one executor.
#
# An :class:`Evaluator` knows a scope and an array library. It evaluates; it remembers nothing but
# which undefined values were looked at, and it knows neither steps nor other ranks.

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


#: names that have one value on a rank, and functions that give one value for one list of arguments
_FIXED_NAMES = frozenset({"rank", "world_size"})
_FIXED_CALLS = frozenset({"abs", "len", "max", "min", "range", "sum"})


def is_fixed(form: Any) -> bool:
    """Return whether a form has one value on a rank, whatever that holds."""
    return all(
        each.names <= _FIXED_NAMES and each.calls <= _FIXED_CALLS and not each.before
        for each in expressions_in(form)
    )


#: part of what every function raises for a name without a value
_NOT_HERE = "no value on this rank"


class Evaluator:
    """Evaluates forms on one rank, in a scope of names and functions.

    >>> from torch_scenarios.expressions.compile import compile_expression
    >>> from torch_scenarios.expressions.functions import numpy_arrays
    >>> evaluator = Evaluator(2, numpy_arrays())
    >>> evaluator.scope = {"__builtins__": numpy_arrays().functions(), "rank": 2}
    >>> evaluator.evaluate(compile_expression("[i * i for i in range(rank + 1)]", None))
    [0, 1, 4]

    What it reads of undefined values is noted and does not raise: a run goes on with what is there,
    and its mistake is reported once, where the value was left undefined.
    """

    def __init__(self, rank: int, arrays: Arrays) -> None:
        """Begin with an empty scope."""
        self.rank = rank
        self.arrays = arrays
        self.scope: dict[str, Any] = {}
        #: names whose value an operation left undefined, or is still writing
        self.undefined: dict[str, Undefined] = {}
        #: names of which running work writes a part, or several
        self.busy: dict[str, tuple[Undefined, ...]] = {}
        #: whether an argument is evaluated, which may be a view of what is undefined
        self._gives = False
        #: names that `let` gives to numbers: one that the scope lacks is not named on this rank
        self.numbers: frozenset[str] = frozenset()
        #: the undefined values that were read since this list was last emptied
        self.undefined_reads: list[tuple[str, Undefined]] = []
        #: what selectors say that nothing changes, by the identity of their form and the rank
        self.selected: dict[tuple[int, int], tuple[Form, bool]] = {}

    def evaluate(self, form: Form | None) -> Any:
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
                if self.undefined or self.busy:
                    return self._watch(form)
                return self._compute(form)
            case ListForm():
                return [self.evaluate(item) for item in form.items]
            case Record():
                return {name: self.evaluate(item) for name, item in form.fields.items()}
            case PerRank():
                return self.evaluate(self.choose(form))
            case TypedValue():
                return self.tensor_value(form, dtype=None)
            case Objects():
                return self._tree(form.tree)

    def _tree(self, tree: Any) -> Any:
        if isinstance(tree, Expression):
            return _plain(self.evaluate(tree), tree)
        if isinstance(tree, dict):
            return {key: self._tree(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return [self._tree(value) for value in tree]
        return tree

    def _watch(self, form: Expression) -> Any:
        """Return the value of a form, and note what it reads that is undefined."""
        value = None
        try:
            value = self._compute(form)
        finally:
            self._note_undefined(form, value)
        return value

    def _note_undefined(self, form: Expression, value: Any) -> None:
        """Note the undefined values that a form depends on; of an argument, if it is a copy."""
        if is_empty(value):
            return
        for name in sorted(form.reads):
            if name not in self.undefined and name not in self.busy:
                continue
            if self._gives and shares(value, self.scope.get(name)):
                continue
            left = self.undefined.get(name)
            for part in (*((left,) if left else ()), *self.busy.get(name, ())):
                if not part.memory or depends(form, self.scope, part.memory):
                    self.undefined_reads.append((name, replace(part, memory=())))

    def _compute(self, form: Expression) -> Any:
        try:
            return form.evaluate(self.scope)
        except CANNOT_COMPUTE as error:
            if isinstance(error, NameError) and error.name in self.numbers:
                raise ScenarioError([unknown_on_rank(form, error.name, self.rank)]) from error
            if _NOT_HERE in str(error):
                empty = sorted(name for name in form.names if self.scope.get(name, 0) is None)
                made = {name: self.find_origin(name) for name in empty}
                raise ScenarioError([valueless(form, made, self.rank)]) from error
            what = f"`{form.text.strip()}`"
            raise ScenarioError([cannot_compute(what, form.mark, self.rank, error)]) from error

    def find_origin(self, name: str) -> Mark | None:
        """Return the place that gives a name its value; None where that is not known."""
        return None

    def place_of(self, form: Any, parts: Iterable[str] = ()) -> Mark | None:
        """Return the place of what a form states for this rank: the innermost that selects it.

        `parts` are keys of a long form: the first of them that it states is the place.
        """
        place = getattr(form, "mark", None)
        while isinstance(form, PerRank):
            at = next(
                (n for n, (selector, _) in enumerate(form.branches) if self.selects(selector)),
                len(form.branches),
            )
            place = form.places[at] if at < len(form.places) else form.mark
            form = form.branches[at][1] if at < len(form.branches) else form.otherwise
        stated = (getattr(form, part) for part in parts if isinstance(form, TypedValue))
        inner = next((part for part in stated if part is not None), None)
        return place if inner is None else self.place_of(inner) or place

    def choose(self, form: PerRank[Any]) -> Any:
        """Return the value of the first branch that selects this rank, else `otherwise`."""
        for selector, value in form.branches:
            if self.selects(selector):
                return value
        return form.otherwise

    def selects(self, selector: Selector) -> bool:
        """Return whether a selector selects this rank: a boolean, a rank or some ranks."""
        form = selector.form
        key = (id(form), self.rank)
        known = self.selected.get(key)
        if known is not None and known[0] is form:
            return known[1]
        found = self._answer(selector)
        if isinstance(form, Expression) and is_fixed(form):
            self.selected[key] = (form, found)
        return found

    def _answer(self, selector: Selector) -> bool:
        value = self.evaluate(selector.form)
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value == self.rank
        try:
            if isinstance(value, list | tuple | range):
                return self.rank in value
            if self.arrays.is_array(value) and not tuple(value.shape):
                is_flag = self.arrays.dtype(value) == "bool"
                return bool(value) if is_flag else take_integer(value) == self.rank
        except CANNOT_COMPUTE:
            pass
        raise ScenarioError([no_selector(selector, value)])

    def tensor_value(self, form: Form | None, *, dtype: str | None) -> Any:
        """Return a tensor, or a list of tensors, from any form of value; None if it has none here.

        `dtype` is cast to where the form states none; None keeps what an expression yields and
        makes float32 of data. An array that an expression yields is not copied.
        """
        match form:
            case PerRank():
                return self.tensor_value(self.choose(form), dtype=dtype)
            case TypedValue():
                stated = self.evaluate(form.dtype)
                sizes = self.sizes(form.shape)
                value = self.tensor_value(form.value, dtype=stated or dtype)
                if sizes is None or value is None:
                    return value
                return self._guard(lambda: self.arrays.reshape(value, sizes), form.mark)
            case ListForm():
                values = [self.tensor_value(item, dtype=dtype) for item in form.items]
                if any(self.arrays.is_array(item) and tuple(item.shape) for item in values):
                    return values
                return self._convert([self._item(value) for value in values], dtype, form.mark)
            case _:
                value = self.evaluate(form)
                mark = form.mark if form is not None else None
                return value if value is None else self._convert(value, dtype, mark)

    def sizes(self, form: Form | None) -> tuple[int, ...] | None:
        """Return a shape: an integer is one of one dimension. Raises ScenarioError."""
        value = self.evaluate(form)
        if value is None:
            return None
        listed = [value] if value.__class__ is int else value
        mark = form.mark if form is not None else None
        return tuple(self._guard(lambda: wholes(listed), mark))

    def _item(self, value: Any) -> Any:
        return value.item() if self.arrays.is_array(value) else value

    def _convert(self, value: Any, dtype: str | None, mark: Mark | None) -> Any:
        arrays = self.arrays
        if arrays.is_array(value):
            if dtype is None or arrays.dtype(value) == dtype:
                return value
        elif isinstance(value, list) and any(arrays.is_array(item) for item in value):
            return [self._convert(item, dtype, mark) for item in value]
        elif isinstance(value, range):
            value = list(value)
        return self._guard(lambda: arrays.array(value, dtype or DEFAULT_DTYPE), mark)

    def _guard(self, make: Callable[[], Any], mark: Mark | None) -> Any:
        try:
            return make()
        except CANNOT_COMPUTE as error:
            raise ScenarioError([cannot_compute("this value", mark, self.rank, error)]) from error


def _plain(value: Any, expression: Expression) -> Any:
    """Return what a part of an object is: numbers and lists, which every rank can be sent.

    Raises ScenarioError for a tensor or a complex number: objects hold plain values alone.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, range | list | tuple):
        return [_plain(item, expression) for item in value]
    what = "a complex number" if isinstance(value, complex) else "a tensor"
    message = f"`{expression.text}` is {what}, and an object holds plain values: numbers, lists"
    hint = "send a tensor with an operation on tensors"
    raise ScenarioError(
        [Problem(code="wrong_type", message=message, mark=expression.mark, hint=hint)]
    )


# -------------------------------------------------------------------------------------------------
# Forms -> values of the type that a place wants: an argument's kind, seconds, sizes, counts.

#: kinds of a required argument that mean nothing where a rank has none
NEEDED = frozenset({"word", "name", "rank"})


class TypedEvaluator(Evaluator):
    """An evaluator that also reads a value as what its place asks for.

    A peer is an integer, `async_op` a bool, a tensor argument a tensor below so many lists. What is
    not so is a problem with the argument's name and the rank on which it is.
    """

    def evaluate_argument(self, param: Param, form: Form | None) -> Any:
        """Return an argument in the type of its kind (see :data:`params.KINDS`).

        A tensor argument may be undefined: what of it the operation reads, the caller knows. What
        it is computed from is read here.
        """
        if form is None:
            return param.default
        if param.kind in {"tensor", "tensors", "tensor_lists"}:
            self._gives = True
            try:
                value = self._tensor_argument(param.kind, form)
            finally:
                self._gives = False
            if not has_depth(self.arrays, value, DEPTHS[param.kind]):
                raise ScenarioError([wrong_value(param, form.mark, self.rank)])
            return value
        value = self.evaluate(form)
        if value is None:
            if param.required and param.kind in NEEDED:
                raise ScenarioError([not_given(param, form.mark, self.rank)])
            return param.default
        read = READ.get(param.kind)
        if read is None:
            return value
        try:
            return read(value)
        except CANNOT_COMPUTE as error:
            raise ScenarioError([wrong_argument(param, form.mark, self.rank, error)]) from error

    def seconds(self, form: Form) -> float | None:
        """Return a duration; None where it has none here. Raises ScenarioError."""
        value = self.evaluate(form)
        return None if value is None else self._guard(lambda: seconds(value), form.mark)

    def find_turns(self, form: Form | None, variable: str, mark: Mark | None) -> list[int]:
        """Return the integers that a `for` runs over; `mark` is the loop's own place.

        Raises ScenarioError.
        """
        values = self.evaluate(form)
        try:
            return wholes(values)
        except CANNOT_COMPUTE as error:
            at = form.mark if form is not None and form.mark is not None else mark
            problem = not_countable(variable, values, at, self.rank, error)
            raise ScenarioError([problem]) from error

    def _tensor_argument(self, kind: str, form: Form) -> Any:
        if kind == "tensor":
            return self.tensor_value(form, dtype=None)
        chosen = self.choose(form) if isinstance(form, PerRank) else form
        if isinstance(chosen, ListForm):
            inner = "tensor" if kind == "tensors" else "tensors"
            return [self._tensor_argument(inner, item) for item in chosen.items]
        if isinstance(chosen, Constant) and isinstance(chosen.value, list):
            make = partial(data_at, self.arrays, DEPTHS[kind], chosen.value)
            return self._guard(make, chosen.mark)
        return self.evaluate(chosen)
