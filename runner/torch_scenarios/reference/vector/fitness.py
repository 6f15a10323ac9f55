"""What of a step no column can hold, as its text tells: the ranks that take it walk on from there.

Told once for each step, before any rank takes it. What else cohorts leave over shows only in the
values that ranks hold, and in what they have under way (:func:`..cohort.leave`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Constant, Form, ListForm, Record
from torch_scenarios.model.scenario import Step
from torch_scenarios.operations.base import (
    Collective,
    GroupCreation,
    Local,
    Operation,
    PointToPoint,
    Waiting,
)
from torch_scenarios.operations.sleep import Sleep
from torch_scenarios.vocabulary import WORLD

#: the shapes of operations that many ranks can begin at once
SHAPES = (Local, Collective, PointToPoint, Waiting, GroupCreation)
#: kinds of arguments that are no tensors of one shape
SHAPELESS = {"tensor_lists", "objects", "object", "p2p_ops"}
#: the kinds of the arguments that make one message, and those of them that are not its peer
MESSAGE = {"tensor", "rank", "group_rank", "group", "tag"}


def find_misfit(step: Step, *, hollow: bool = False) -> str | None:
    """Return what of a step no column can hold; None where its text tells of nothing.

    Where tensors are `hollow` there is no clock: a pause is noted for who has one.
    """
    operation = step.operation
    if operation is None or (hollow and isinstance(operation, Sleep)):
        return None
    if step.expect is not None and step.expect.raises is not None:
        return "a step that raises"
    if not isinstance(operation, SHAPES):
        return "a step of a model, or a call of a function"
    if isinstance(operation, Local):
        return _find_in_local(step, operation)
    groups = _name_groups(step)
    if len(groups) != 1 or None in groups:
        return "a group that is computed, or messages in several groups"
    if isinstance(operation, PointToPoint):
        return _find_in_messages(step, operation)
    kinds = {param.kind for param in operation.params}
    if isinstance(operation, Collective) and not kinds.isdisjoint(SHAPELESS):
        return "objects, or lists of lists of tensors"
    return None


def _find_in_local(step: Step, operation: Local) -> str | None:
    assignments = next(iter(step.arguments.values()), None)
    refuses = type(operation).refuse is not Operation.refuse
    if refuses or not isinstance(assignments, Record):
        return "a local operation that takes time, or may be refused"
    return None


def _find_in_messages(step: Step, operation: PointToPoint) -> str | None:
    calls = list_calls(step, operation)
    if not calls:
        return "a list of messages that is computed"
    for params, forms in calls:
        kinds = {param.kind: param for param in params}
        if not set(kinds) >= MESSAGE or len(kinds) != len(params):
            return "no message of one tensor"
        if forms.get(kinds["tensor"].name) is None:
            return "a message without a tensor"
        others = (forms.get(kinds[kind].name) for kind in kinds.keys() - MESSAGE)
        if not all(isinstance(form, Constant) for form in others):
            return "an argument of a message that is computed"
    return None


def list_calls(
    step: Step, operation: PointToPoint
) -> list[tuple[tuple[Param, ...], Mapping[str, Form]]]:
    """Return the parameters and arguments of each message; none where its list is computed."""
    param = find_list(operation)
    if param is None:
        return [(operation.params, step.arguments)]
    form = step.arguments.get(param.name)
    if len(operation.params) > 1 or not isinstance(form, ListForm):
        return []
    items = list(list_records([form]))
    return [(param.fields, item.fields) for item in items] if len(items) == len(form.items) else []


def find_list(operation: Operation | None) -> Param | None:
    """Return the parameter of an operation that is a list of messages, or None."""
    params = operation.params if operation is not None else ()
    return next((param for param in params if param.fields), None)


def list_records(forms: Iterable[Form | None]) -> Iterator[Record]:
    """Yield the items of lists that are written item by item."""
    for form in forms:
        for item in form.items if isinstance(form, ListForm) else ():
            if isinstance(item, Record):
                yield item


def _name_groups(step: Step) -> set[str | None]:
    """Return the names of the groups of a step and its messages; None is one that is computed."""
    records = [record.fields for record in list_records(step.arguments.values())]
    return {_name_group(each.get("group")) for each in (records or [step.arguments])}


def _name_group(form: Form | None) -> str | None:
    if form is None or (isinstance(form, Constant) and form.value is None):
        return WORLD
    return str(form.value) if isinstance(form, Constant) else None


def group_of(step: Step) -> str:
    """Return the name of the group of a step that fits."""
    (name,) = _name_groups(step)
    assert name is not None
    return name
