"""What a step's call depends on: while that is as it was, the call is the same.

Told from the step alone, before it is taken. What tells nothing beforehand is evaluated each time:
an expression that looks into a tensor, or one that makes a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.forms import Constant, Expression, ListForm, PerRank, Record
from runner.operations.base import GroupCreation, Local
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from runner.forms import Form
    from runner.operations.params import Param
    from runner.plan import Plan
    from runner.scenario import Step

#: kinds of arguments whose list torch may store other objects into
OBJECTS = frozenset({"object", "objects"})
#: kinds of arguments that are stored into: each call wants the very object that a name holds
STORED = OBJECTS | {"tensor", "tensors", "tensor_lists"}

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
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


#: of a step that nobody asked about
UNKNOWN = Same()


class Sameness:
    """What is known beforehand of the calls of one plan."""

    def __init__(self, plan: Plan) -> None:
        """Tell the names that may come to hold something else from those that may not."""
        scenario = plan.scenario
        self._held = {*scenario.tensors, *scenario.objects, *plan.introduced}
        loops = [step for step in steps_of(scenario.steps) if step.variable is not None]
        self._changing = self._held | {str(loop.variable) for loop in loops}
        #: step index -> the variable of the loop right around it, another each round
        self._counted = {step.index: loop.variable for loop in loops for step in loop.body}
        self._known: dict[int, Same] = {}

    def of(self, step: Step) -> Same:
        """Return what is known of a step, which is found out once."""
        known = self._known.get(step.index)
        if known is None:
            variable = self._counted.get(step.index)
            selection = self._names(step.ranks.form, "ranks") if step.ranks else NOTHING
            names = self._call(step, selection)
            counting = () if names is None else self._counting(step, variable)
            if names is not None and variable in names and not counting:
                names = None
            lasting = self._changing - ({variable} if counting else NOTHING)
            known = self._known[step.index] = Same(
                selection=None if selection is None else selection & lasting,
                names=None if names is None else names & lasting,
                counting=counting,
                tensors=_tensors(step),
            )
        return known

    def _counting(self, step: Step, variable: str | None) -> tuple[Expression, ...]:
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
        if isinstance(operation, GroupCreation):
            return None
        if isinstance(operation, Local) and operation.calls_torch:
            return None
        given = step.arguments
        arguments = [
            self._argument(param, given.get(param.name))
            for param in (operation.params if operation else ())
        ]
        return self._joined([selection, self._names(step.handle_index, "rank"), *arguments])

    def _argument(self, param: Param, form: Form | None) -> frozenset[str] | None:
        if param.kind == "assignments":
            return NOTHING  # evaluated by the act itself, each time
        if param.fields and isinstance(form, ListForm):
            return self._joined([self._item(param, item) for item in form.items])
        return self._names(form, param.kind)

    def _item(self, param: Param, form: Form) -> frozenset[str] | None:
        if not isinstance(form, Record):
            return None
        given = form.fields
        return self._joined(
            [self._names(given.get(field.name), field.kind) for field in param.fields]
        )

    def _joined(self, parts: list[frozenset[str] | None]) -> frozenset[str] | None:
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
                return self._joined([self._names(item, kind) for item in form.items])
            case PerRank():
                selectors = [self._names(each.form, "ranks") for each, _ in form.branches]
                values = [self._names(value, kind) for _, value in form.branches]
                return self._joined([*selectors, *values, self._names(form.otherwise, kind)])
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


def _part(form: Form) -> Any:  # noqa: ANN401 -- whatever can be compared
    match form:
        case Expression():
            return form.code
        case Constant():
            return (form.value.__class__, repr(form.value))
        case _:
            return None


def _is_name(form: Expression) -> bool:
    return form.names == {form.text.strip()}
