"""What a work brought, put in place: columns change, and what changed is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.reference.vector.collectives import Entering
from runner.reference.vector.record import Change
from runner.reference.vector.values import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runner.reference.vector.values import Active
    from runner.reference.vector.works import Post


def put_in_place(
    post: Post, active: Active, rows: NDArray[np.int64] | None, slack: dict[str, Any]
) -> list[Change]:
    """Store what arrived on the rows of a post; returns what changed."""
    if isinstance(post, Entering):
        found = []
        for argument, values in post.results.items():
            view = post.arguments[argument]
            if isinstance(view, View):
                found.append(_put(view, active, rows, values))
                if argument in post.bounds and view.offsets is None:
                    bounds = post.bounds[argument]
                    slack[view.column.name] = bounds if rows is None else bounds[rows]
        return found
    if post.target is None or post.arrived is None:
        return []
    change = _put(post.target, active, rows, post.arrived)
    return [change]


def _put(
    view: View, active: Active, rows: NDArray[np.int64] | None, values: NDArray[Any]
) -> Change:
    found = values if rows is None else values[rows]
    view.put(rows, found)
    offsets = view.offsets
    if offsets is not None and rows is not None and len(offsets) > 1:
        offsets = offsets[rows]
    return Change(view.column.name, active, offsets, found)
