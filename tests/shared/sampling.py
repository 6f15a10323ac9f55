"""A part of many cases in the ordinary run, all of them in the nightly one.

What a sweep asserts of every file or program, a few of them assert in the ordinary run: a change
that breaks the rule breaks it there, and one that breaks a rare case alone is found over night.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def sampled(items: Sequence[Any], every: int) -> list[Any]:
    """Return parameters of a test: one in `every` of the items, the others marked nightly.

    A tuple is the values of several parameters; what `pytest.param` made keeps its name and marks.
    """
    return [
        _parameters(item, () if number % every == 0 else (pytest.mark.nightly,))
        for number, item in enumerate(items)
    ]


def _parameters(item: Any, marks: Sequence[pytest.MarkDecorator]) -> Any:
    if hasattr(item, "values") and hasattr(item, "marks"):
        return pytest.param(*item.values, id=item.id, marks=(*item.marks, *marks))
    return pytest.param(*(item if isinstance(item, tuple) else (item,)), marks=marks)


def strides(ordinary: int, nightly: int = 1) -> list[Any]:
    """Return how many of many one is taken of, for a test that goes through them by itself."""
    return [ordinary, pytest.param(nightly, marks=pytest.mark.nightly)]
