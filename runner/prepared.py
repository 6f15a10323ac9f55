"""What is known of a step's call before any rank takes it: most arguments are the same each time.

Told from the step alone, once for all ranks and all rounds of a loop, so that a call evaluates only
what may differ. Knows no rank and no array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.forms import Constant, Expression, PerRank, roots_of
from runner.operations.base import Operation

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.operations.params import Param
    from runner.scenario import Step

#: kinds whose constant is the argument itself, by the types that it may have
_PLAIN: dict[str, tuple[type, ...]] = {
    "rank": (int,),
    "group_rank": (int,),
    "tag": (int,),
    "group": (str,),
    "reduce_op": (str,),
    "flag": (bool,),
    "handles": (str,),
    "word": (str,),
    "text": (str,),
    "name": (str,),
}


#: kinds of arguments that are the tensor itself where a form is a tensor's name
_TENSORS = {"tensor", "tensors", "tensor_lists"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One step's call, as far as it is known.

    `arguments` has every parameter, in order: what is known of them, and a default for those
    `given` by forms that are evaluated each time; None where the operation evaluates them itself.
    `names` are what the forms given consist of, where each is the name of a tensor alone: then the
    same tensors make the same call. `roots` has every argument with the names whose storage it may
    share, and `chosen` the forms of those that depend on the rank. `group` is the name of the
    group; `computed` tells that it is not known.
    """

    arguments: dict[str, Any] | None
    given: tuple[tuple[Param, Form], ...]
    names: tuple[str, ...] | None
    roots: dict[str, frozenset[str]] | None
    chosen: tuple[tuple[str, Form], ...]
    group: str | None
    computed: bool


def prepared(step: Step) -> Prepared:
    """Return what is known of the call of a step that has an operation."""
    operation = step.operation
    assert operation is not None  # noqa: S101 -- asked by the caller
    kind = type(operation)
    known: dict[str, Any] = {}
    given: list[tuple[Param, Form]] = []
    for param in operation.params:
        form = step.arguments.get(param.name)
        known[param.name] = param.default
        if form is not None and not _is_plain(param, form):
            given.append((param, form))
        elif isinstance(form, Constant) and form.value is not None:
            known[param.name] = form.value
    stated = {
        param.name: step.arguments[param.name]
        for param in operation.params
        if param.name in step.arguments
    }
    group = step.arguments.get("group")
    fixed = group is None or isinstance(group, Constant)
    return Prepared(
        arguments=known if kind.evaluate is Operation.evaluate else None,
        given=tuple(given),
        names=_names(given),
        roots={name: roots_of(form) for name, form in stated.items()}
        if kind.roots is Operation.roots
        else None,
        chosen=tuple((name, form) for name, form in stated.items() if isinstance(form, PerRank)),
        group=group.value if isinstance(group, Constant) else None,
        computed=not fixed or kind.group_of is not Operation.group_of,
    )


def _names(given: list[tuple[Param, Form]]) -> tuple[str, ...] | None:
    """Return the names that forms consist of; None where one is more than a tensor's name."""
    if any(
        param.kind not in _TENSORS
        or not isinstance(form, Expression)
        or form.names != {form.text.strip()}
        for param, form in given
    ):
        return None
    return tuple(form.text.strip() for _, form in given if isinstance(form, Expression))


def _is_plain(param: Param, form: Form) -> bool:
    if not isinstance(form, Constant):
        return False
    if param.kind not in _PLAIN:
        return False
    return form.value is None or form.value.__class__ in _PLAIN[param.kind]
