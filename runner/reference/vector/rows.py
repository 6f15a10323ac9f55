"""Arguments of a call of many ranks -> of one of them, or of some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def own(value: Any, row: int) -> Any:  # noqa: ANN401 -- an argument has any type
    """Return what an argument is in one row, as plain Python."""
    if isinstance(value, np.ndarray):
        return value[row].item()
    if isinstance(value, list):
        return [own(item, row) for item in value]
    if isinstance(value, dict):
        return {key: own(item, row) for key, item in value.items()}
    return value


def some(value: Any, rows: NDArray[np.int64]) -> Any:  # noqa: ANN401 -- an argument has any type
    """Return what an argument is in some rows."""
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, list):
        return [some(item, rows) for item in value]
    if isinstance(value, dict):
        return {key: some(item, rows) for key, item in value.items()}
    return value
