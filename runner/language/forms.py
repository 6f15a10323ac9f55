"""What a tensor holds: data, an expression, the long form with a dtype, one value a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.forms import Constant, ListForm, Typed
from runner.language.choosing import integer, integers, listing, per_rank
from runner.language.expressing import constant_value, expression
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text
from runner.language.words import fixed_form
from runner.problems import nearest
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context


#: a mapping with one of these keys is the long form of a value, any other is per rank
LONG_FORM = ("value", "dtype", "shape")
TOLERANCES = ("rtol", "atol")


def value(node: Node, context: Context) -> Form:
    """Return a tensor's value: data, an expression, a per-rank mapping or the long form."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar():
            return Constant(value=node.value, mark=node.mark)
        case Sequence():
            return _rectangular(listing(node, context, value), context)
        case Mapping() if is_long_form(node):
            return long_form(node, context)
        case Mapping():
            return per_rank(node, context, value)


def is_long_form(node: Node) -> bool:
    """Whether a node is a value's long form rather than a mapping from ranks to values."""
    return isinstance(node, Mapping) and any(
        key_text(key) in LONG_FORM or key_text(key) in TOLERANCES for key, _ in node.entries
    )


def long_form(node: Mapping, context: Context, *, tolerances: bool = False) -> Typed:
    """Return `{value: ..., dtype: ..., shape: ...}`, in expectations with `rtol` and `atol`."""
    known = (*LONG_FORM, *TOLERANCES) if tolerances else LONG_FORM
    fields: dict[str, Any] = {}
    for key, item in node.entries:
        match key_text(key):
            case "value":
                fields["value"] = value(item, context)
            case "dtype":
                fields["dtype"] = dtype(item, context)
            case "shape":
                fields["shape"] = sizes(item, context)
            case "rtol" | "atol" as name if tolerances:
                fields[name] = _tolerance(item, context, name)
            case name:
                context.faults.unknown(
                    "unknown_key",
                    f"unknown key `{name}` of a value's long form",
                    name,
                    known,
                    key.mark,
                    listed="its keys are",
                )
    misspelt = any(nearest(word, ("value",)) for word in node.words() if word not in known)
    if not tolerances and "value" not in fields and not misspelt:
        context.faults.add(
            "missing_key",
            "this long form has no `value`",
            node.mark,
            "write `{value: ..., dtype: ...}`",
        )
    return Typed(**{"value": None, **fields}, mark=node.mark)


def dtype(node: Node, context: Context) -> Form:
    """Return a dtype's name, or a mapping from ranks to such names."""
    return fixed_form(node, context, DTYPES, code="unknown_dtype", what="dtype")


def _tolerance(node: Node, context: Context, name: str) -> float:
    given = constant_value(node, context, what=name)
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    if given is not None:
        context.faults.add(
            "bad_value",
            f"{name} must be a number, zero or more",
            node.mark,
            f"write `{name}: 1e-3`",
        )
    return 0.0


def _rectangular(form: Form, context: Context) -> Form:
    """Refuse rows that differ in length; in an expectation they are a list of tensors."""
    if not isinstance(form, Constant) or _shape(form.value) is not None:
        return form
    rows = form.value
    if context.expecting and all(isinstance(row, list) and _shape(row) for row in rows):
        return ListForm(
            items=tuple(Constant(value=row, mark=form.mark) for row in rows), mark=form.mark
        )
    context.faults.add(
        "ragged_list",
        "the rows of this list differ in length, so it is no tensor",
        form.mark,
        "a list of tensors is written as an expression: `[zeros(1), zeros(2)]`",
    )
    return form


def _shape(data: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    if not isinstance(data, list):
        return ()
    shapes = {_shape(item) for item in data}
    if not shapes:
        return (0,)
    inner = shapes.pop()
    return None if shapes or inner is None else (len(data), *inner)


def sizes(node: Node, context: Context) -> Form:
    """Return a shape: an integer, a list of integers or an expression."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, int):
        return integer(node, context, what="a shape")
    return integers(node, context, what="a shape")
