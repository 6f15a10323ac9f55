"""From nodes to forms: values, per-rank mappings, selectors, integers, durations, fixed names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from runner.language.expressing import FAILED, constant_value, expression
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of, source_text
from runner.scenario import DTYPES, Constant, ListForm, PerRank, Selector, Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from runner.language.context import Context
    from runner.scenario import Form

T = TypeVar("T")

#: a mapping with one of these keys is the long form of a value, any other is per rank
LONG_FORM = ("value", "dtype", "shape")
TOLERANCES = ("rtol", "atol")

ELSE = "else"

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(us|ms|s|min|h)")
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


# ---------------------------------------------------------------------- who


def selector(node: Node, context: Context) -> Selector:
    """Return which ranks a node selects: an integer, a list of integers or an expression."""
    text = source_text(node)
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool() | int()):
            form: Form = Constant(value=node.value, mark=node.mark)
        case Scalar(value=str()):
            form = expression(node, context)
        case Sequence():
            form = integers(node, context, what="a selector")
        case _:
            wrong_type(node, context, "a selector", "a rank, a list of ranks or an expression")
            form = FAILED
    return Selector(form=form, text=text, mark=node.mark)


def per_rank(node: Mapping, context: Context, build: Callable[[Node, Context], T]) -> PerRank[T]:
    """Return a mapping from selectors to what `build` makes of its values."""
    branches: list[tuple[Selector, T]] = []
    otherwise: T | None = None
    for key, value in node.entries:
        if key_text(key) == ELSE:
            otherwise = build(value, context)
        else:
            branches.append((selector(key, context), build(value, context)))
    if not node.entries:
        context.faults.add(
            "empty_mapping",
            "a mapping from ranks to values is empty",
            node.mark,
            "write `{0: ..., else: ...}`",
        )
    return PerRank(branches=tuple(branches), otherwise=otherwise, mark=node.mark)


# ---------------------------------------------------------------------- what


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
    if not tolerances and "value" not in fields:
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
        context.faults.add("bad_value", f"{name} must be a number, zero or more", node.mark)
    return 0.0


def listing(node: Sequence, context: Context, build: Callable[[Node, Context], Form]) -> Form:
    """Return a list: data where every item is, otherwise a list of forms."""
    if all(isinstance(item, Scalar) and not isinstance(item.value, str) for item in node.items):
        for item in node.items:
            if isinstance(item, Scalar) and item.value is None:
                context.faults.add("bad_value", "a list of numbers has an empty item", item.mark)
        plain = [item.value for item in node.items if isinstance(item, Scalar)]
        return Constant(value=plain, mark=node.mark)
    items = tuple(build(item, context) for item in node.items)
    if all(isinstance(item, Constant) for item in items):
        return Constant(value=[_constant(item) for item in items], mark=node.mark)
    return ListForm(items=items, mark=node.mark)


def _constant(form: Form) -> Any:  # noqa: ANN401 -- a value has any type
    return form.value if isinstance(form, Constant) else None


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


# ---------------------------------------------------------------------- numbers


def integer(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return an integer, an expression, or a mapping from ranks to these."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool() | float()) | Sequence():
            return wrong_type(node, context, what, "an integer or an expression")
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar():
            return Constant(value=node.value, mark=node.mark)
        case Mapping():
            return per_rank(node, context, lambda item, there: integer(item, there, what=what))


def integers(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return a list of integers, an expression that yields one, or a mapping from ranks to it."""
    node, context = context.resolve(node)
    match node:
        case Sequence():
            return listing(
                node, context, lambda item, there: integer(item, there, what=f"an item of {what}")
            )
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar(value=None):
            return Constant(value=None, mark=node.mark)
        case Scalar():
            return wrong_type(node, context, what, "a list of integers or an expression")
        case Mapping():
            return per_rank(node, context, lambda item, there: integers(item, there, what=what))


def sizes(node: Node, context: Context) -> Form:
    """Return a shape: an integer, a list of integers or an expression."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, int):
        return integer(node, context, what="a shape")
    return integers(node, context, what="a shape")


def duration_s(text: str) -> float | None:
    """Return the seconds in `10s`, `0.5s`, `200ms`, `2min`; None for any other text."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNIT_S[found[2]] if found else None


def seconds(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return a duration, a number or an expression in seconds, or a mapping from ranks to these."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool()) | Sequence():
            return wrong_type(node, context, what, "a duration such as 1.5s or 200ms")
        case Scalar(value=str()):
            given = _stated_seconds(node, context)
            if given is not None:
                return Constant(value=given, mark=node.mark)
            if _is_no_duration(node, context):
                return FAILED
            return expression(node, context)
        case Scalar(value=int() | float()):
            if node.value < 0:
                context.faults.add("bad_duration", f"{what} is negative", node.mark)
            return Constant(value=float(node.value), mark=node.mark)
        case Scalar():
            return Constant(value=None, mark=node.mark)
        case Mapping():
            return per_rank(node, context, lambda item, there: seconds(item, there, what=what))


def _stated_seconds(node: Scalar, context: Context) -> float | None:
    """Return the seconds in a text, or in a parameter of that name; None for an expression."""
    held = context.names.constants.get(str(node.value))
    return duration_s(held if isinstance(held, str) else str(node.value))


def fixed_seconds(node: Node, context: Context, *, what: str) -> float | None:
    """Return a duration that is the same on every rank, in seconds; None where it fails."""
    node, context = context.resolve(node)
    given: Any = None
    if isinstance(node, Scalar) and isinstance(node.value, str):
        given = _stated_seconds(node, context)
        if given is None and _is_no_duration(node, context):
            return None
    if given is None:
        given = constant_value(node, context, what=what)
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < float("inf"):
        return float(given)
    if given is not None:
        context.faults.add(
            "bad_duration",
            f"{what} must be a duration greater than zero",
            node.mark,
            "write it as 10s, 0.5s, 200ms or 2min",
        )
    return None


def _is_no_duration(node: Scalar, context: Context) -> bool:
    """Note a number with a unit that there is not."""
    if not re.fullmatch(r"[0-9.]+\s*[A-Za-z]+", node.text):
        return False
    context.faults.add(
        "bad_duration",
        f"`{node.text}` is no duration",
        node.mark,
        "the units are us, ms, s, min and h: 10s, 0.5s, 200ms, 2min",
    )
    return True


# ---------------------------------------------------------------------- fixed names


def fixed(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> str | None:
    """Return a fixed name, or the one that a parameter of that name holds; None where it fails."""
    node, context = context.resolve(node)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        context.faults.add(
            "wrong_type", f"{what} is {kind_of(node)}, not a name", node.mark, _listed(known)
        )
        return None
    name = context.final(node.value)
    if name in known or context.is_opaque(name):
        return name
    constants = context.names.constants if context.inlined is None else {}
    if name in constants:
        if constants[name] in known:
            return str(constants[name])
        context.faults.add(
            code,
            f"the value {constants[name]!r} of `{name}` is no {what}",
            node.mark,
            _listed(known),
        )
        return None
    context.faults.unknown(
        code, f"unknown {what} `{node.value}`", name, known, node.mark, listed="known are"
    )
    return None


def _listed(known: Collection[str]) -> str:
    return f"known are: {', '.join(sorted(known))}"


def fixed_form(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> Form:
    """Return a fixed name, or a mapping from ranks to such names."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    if isinstance(node, Mapping):
        return per_rank(
            node,
            context,
            lambda item, there: fixed_form(item, there, known, code=code, what=what),
        )
    return Constant(value=fixed(node, context, known, code=code, what=what), mark=node.mark)


def wrong_type(node: Node, context: Context, what: str, wanted: str) -> Constant:
    """Note that a node is of the wrong sort."""
    context.faults.add("wrong_type", f"{what} is {kind_of(node)}, not {wanted}", node.mark)
    return FAILED
