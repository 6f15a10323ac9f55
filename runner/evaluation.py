"""Forms -> values, on one rank now: what a scenario writes, in the arrays of one executor.

An :class:`Evaluator` knows a scope and an array library. It evaluates; it remembers nothing but
which undefined values were looked at, and it knows neither steps nor other ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.argument_types import whole, wholes
from runner.forms import Constant, Expression, ListForm, Objects, PerRank, Record, Selector, Typed
from runner.nesting import DEFAULT_DTYPE
from runner.problems import Problem, ScenarioError
from runner.wrong_values import (
    cannot_compute,
    no_selector,
    valueless,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.arrays import Arrays
    from runner.forms import Form
    from runner.operations.entries import Undefined
    from runner.problems import Mark

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


#: part of what every function raises for a name without a value
_NOT_HERE = "no value on this rank"


class Evaluator:
    """Evaluates forms on one rank, in a scope of names and functions."""

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
        #: the undefined values that were read since this list was last emptied
        self.undefined_reads: list[tuple[str, Undefined]] = []

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
                if self.undefined or self.busy:
                    return self._watched(form)
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
            return _plain(self.evaluate(tree), tree)
        if isinstance(tree, dict):
            return {key: self._tree(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return [self._tree(value) for value in tree]
        return tree

    def _watched(self, form: Expression) -> Any:  # noqa: ANN401
        """Return the value of a form, and note what it reads that is undefined."""
        value = None
        try:
            value = self._compute(form)
        finally:
            self._note_undefined(form, value)
        return value

    def _note_undefined(self, form: Expression, value: Any) -> None:  # noqa: ANN401
        """Note the undefined values that a form depends on; of an argument, if it is a copy."""
        from runner.probing import (  # noqa: PLC0415 -- NumPy, where it is needed
            depends,
            is_empty,
            shares,
        )

        if is_empty(value):
            return
        for name in sorted(form.reads & (self.undefined.keys() | self.busy.keys())):
            if self._gives and shares(value, self.scope.get(name)):
                continue
            left = self.undefined.get(name)
            for part in (*((left,) if left else ()), *self.busy.get(name, ())):
                if not part.memory or depends(form, self.scope, part.memory):
                    self.undefined_reads.append((name, replace(part, memory=())))

    def _compute(self, form: Expression) -> Any:  # noqa: ANN401
        try:
            return form.evaluate(self.scope)
        except CANNOT_COMPUTE as error:
            if _NOT_HERE in str(error):
                empty = sorted(name for name in form.names if self.scope.get(name, 0) is None)
                made = {name: self.made_at(name) for name in empty}
                raise ScenarioError([valueless(form, made, self.rank)]) from error
            what = f"`{form.text.strip()}`"
            raise ScenarioError([cannot_compute(what, form.mark, self.rank, error)]) from error

    def made_at(self, name: str) -> Mark | None:  # noqa: ARG002 -- whoever knows the steps does
        """Return the place that gives a name its value; None where that is not known."""
        return None

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
        try:
            if isinstance(value, list | tuple | range):
                return self.rank in value
            if self.arrays.is_array(value) and not tuple(value.shape):
                is_flag = self.arrays.dtype(value) == "bool"
                return bool(value) if is_flag else whole(value) == self.rank
        except CANNOT_COMPUTE:
            pass
        raise ScenarioError([no_selector(selector, value)])

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
                sizes = self.sizes(form.shape)
                value = self.tensor_value(form.value, dtype=stated or dtype)
                if sizes is None or value is None:
                    return value
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

    def sizes(self, form: Form | None) -> tuple[int, ...] | None:
        """Return a shape: an integer is one of one dimension. Raises ScenarioError."""
        value = self.evaluate(form)
        if value is None:
            return None
        listed = [value] if value.__class__ is int else value
        mark = form.mark if form is not None else None
        return tuple(self._guarded(lambda: wholes(listed), mark))

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


def _plain(value: Any, expression: Expression) -> Any:  # noqa: ANN401 -- a number or a list of them
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
