"""Calls of the language's functions with arguments that differ from rank to rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runner.reference.vector.rules import whole_number
from runner.reference.vector.tensors import elementwise, filled, joined, reshaped, tensor_of
from runner.reference.vector.values import Stack, Value, View, leave, varies

if TYPE_CHECKING:
    from runner.reference.vector.tensors import Functions

#: functions that work element by element and round nowhere but at the end
_ELEMENTWISE = {"abs", "sqrt", "minimum", "maximum", "where"}


def called(
    functions: Functions, name: str, given: list[Value], named: dict[str, Value], size: int
) -> Value:
    """Call one of the language's functions with something that differs, on `size` ranks."""
    if name in _ELEMENTWISE and not named:
        return elementwise(functions, f"{name}()", *given)
    if name == "astype" and not named and not varies(given[1]):
        return Stack(functions["astype()"](tensor_of(given[0]), given[1]))
    if name in {"concat", "stack"}:
        axis = given[1] if len(given) > 1 else named.pop("axis", 0)
        if not named:
            return joined(functions, f"{name}()", given[0], axis, size)
    if name == "full" and not named and not varies(given[0]):
        dtype = given[2] if len(given) > 2 else "float32"  # noqa: PLR2004 -- its third argument
        return filled(functions, given[0], given[1], dtype)
    if name == "reshape" and not named and not varies(given[1]):
        return reshaped(*given)
    if name == "int":
        return whole_number(given[0])
    if name in {"len", "shape", "numel"} and isinstance(given[0], Stack | View):
        return functions[f"{name}()"](np.broadcast_to(np.zeros(()), given[0].shape))
    return leave(name)
