"""How far the result of a reduction may be off, because the order of its terms is open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.reduction import epsilon, is_inexact, wide

if TYPE_CHECKING:
    from runner.operations.base import Collective
    from runner.operations.entries import Entry

#: reduce ops whose floating-point result depends on the order
ORDER_MATTERS = frozenset({"sum", "avg", "product"})


def slack_of(operation: Collective, entries: list[Entry]) -> list[dict[str, Any]]:
    """Return how far each result may be off because the order of its reduction is open.

    The bound for n terms in any order is (n - 1) roundings of the sum of their absolute values
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); that sum is the operation's own
    result on the absolute values. Empty where every order gives the same.
    """
    op = entries[0].arguments.get("op")
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or len(entries) < 2:  # noqa: PLR2004
        return []
    exact = [_integral(entry) for entry in entries]
    dtypes = [each.dtype for entry in entries for each in _arrays(entry) if is_inexact(each)]
    if not dtypes:
        return []
    sizes = operation.reference(
        [
            replace(
                entry, arguments={name: _size(value) for name, value in entry.arguments.items()}
            )
            for entry in entries
        ]
    )
    eps = epsilon(dtypes[0])
    found = []
    for result in sizes:
        bounds = {name: _bound(value, eps, len(entries)) for name, value in result.items()}
        if all(exact) and op != "avg":
            bounds = {name: _unless_exact(value, len(entries)) for name, value in bounds.items()}
        found.append(bounds)
    return found


def _arrays(entry: Entry) -> list[Any]:
    found: list[Any] = []
    for value in entry.arguments.values():
        found += [value] if isinstance(value, np.ndarray) else []
        found += [v for v in value if isinstance(v, np.ndarray)] if isinstance(value, list) else []
    return found


def _integral(entry: Entry) -> bool:
    arrays = [wide(each) for each in _arrays(entry) if is_inexact(each)]
    with np.errstate(all="ignore"):
        return all(bool((each == np.rint(each.real)).all()) for each in arrays)


def _size(value: Any) -> Any:  # noqa: ANN401 -- an argument has any type
    if isinstance(value, np.ndarray):
        return np.abs(wide(value)) if is_inexact(value) else value
    if isinstance(value, list):
        return [_size(item) for item in value]
    return value


def _bound(value: Any, eps: float, count: int) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_bound(item, eps, count) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        return np.nan_to_num(value * (eps * count), nan=0.0, posinf=0.0, neginf=0.0)
    return None


def _unless_exact(value: Any, count: int) -> Any:  # noqa: ANN401
    """Integers whose sum of sizes the dtype still represents add up exactly in any order."""
    if isinstance(value, list):
        return [_unless_exact(item, count) for item in value]
    if value is None:
        return None
    return np.where(value <= count, 0.0, value)
