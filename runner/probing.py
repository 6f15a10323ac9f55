"""Whether what an expression yields depends on some elements of the tensors that it reads.

The elements are filled with values that are far apart, and the expression is computed with each:
where it always comes to the same, it relies on none of them. `sum(x[2:4])` does not depend on
`x[0:2]`, nor does `x[3]`; `max(x)` does, whatever `x[0:2]` holds at the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from runner.forms import Expression

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


def shares(value: Any, held: Any) -> bool:  # noqa: ANN401 -- arrays, or lists of such
    """Return whether a value is, or shares an element with, what is held."""
    if isinstance(held, list):
        return value is held or any(shares(value, item) for item in held)
    if isinstance(value, list):
        return any(shares(item, held) for item in value)
    arrays = isinstance(value, np.ndarray) and isinstance(held, np.ndarray)
    return value is held or (arrays and np.may_share_memory(value, held))


def is_empty(value: Any) -> bool:  # noqa: ANN401 -- arrays, or lists of such
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


def _bits(value: Any) -> Any:  # noqa: ANN401 -- a value of an expression
    """Return what tells a value from others, copied."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    return repr(value)
