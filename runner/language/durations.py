"""Durations: `10s`, `0.5s`, `200ms`, `2min`, a bare number of seconds, an expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from runner.argument_types import LONGEST_S
from runner.forms import Constant
from runner.language.choosing import per_rank, wrong_type
from runner.language.expressing import FAILED, constant_value, expression
from runner.language.tree import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(us|ms|s|min|h)")


_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


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
                _police(given, node, context, what)
                return Constant(value=given, mark=node.mark)
            if _is_no_duration(node, context):
                return FAILED
            return expression(node, context)
        case Scalar(value=int() | float()):
            _police(node.value, node, context, what)
            return Constant(value=float(node.value), mark=node.mark)
        case Scalar():
            return Constant(value=None, mark=node.mark)
        case Mapping():
            return per_rank(node, context, lambda item, there: seconds(item, there, what=what))


def _police(given: float, node: Node, context: Context, what: str) -> None:
    """Note a duration that no clock can wait for, or no one should."""
    if given < 0:
        hint = "a duration is never negative: 10s, 0.5s, 200ms"
        context.faults.add("bad_duration", f"{what} is negative", node.mark, hint)
    elif not given <= LONGEST_S:
        hint = "one sleep, or timeout, is at most an hour: 3600s, 1h"
        message = f"{what} is longer than an hour" if given > 0 else f"{what} is no duration"
        context.faults.add("bad_duration", message, node.mark, hint)


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
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= LONGEST_S:
        return float(given)
    if given is not None:
        context.faults.add(
            "bad_duration",
            f"{what} must be a duration greater than zero, and at most an hour",
            node.mark,
            "write it as 10s, 0.5s, 200ms or 2min",
        )
    return None


def _is_no_duration(node: Scalar, context: Context) -> bool:
    """Note a number with a unit that there is not, or a negative one."""
    if not re.fullmatch(r"[-+]?[0-9.]+(e-?[0-9]+)?\s*[A-Za-zµ]+", node.text):
        return False
    hint = "the units are us, ms, s, min and h: 10s, 0.5s, 200ms, 2min"
    if node.text.startswith("-") and duration_s(node.text[1:]) is not None:
        hint = "a duration is never negative: 10s, 0.5s, 200ms"
    context.faults.add("bad_duration", f"`{node.text}` is no duration", node.mark, hint)
    return True
