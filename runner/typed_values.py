"""Forms -> values of the type that a place wants: an argument's kind, seconds, sizes, counts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from runner.argument_types import READ, seconds, wholes
from runner.evaluation import CANNOT_COMPUTE, Evaluator
from runner.forms import Constant, ListForm, PerRank
from runner.nesting import DEPTHS, data_at, has_depth, wrong_value
from runner.problems import ScenarioError
from runner.wrong_values import not_countable, not_given, wrong_argument

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.operations.params import Param
    from runner.problems import Mark

#: kinds of a required argument that mean nothing where a rank has none
NEEDED = frozenset({"word", "name"})


class TypedEvaluator(Evaluator):
    """An evaluator that also reads a value as what stands there must be."""

    def evaluate_argument(self, param: Param, form: Form | None) -> Any:  # noqa: ANN401
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
        return None if value is None else self._guarded(lambda: seconds(value), form.mark)

    def counted(self, form: Form | None, variable: str, mark: Mark | None) -> list[int]:
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
