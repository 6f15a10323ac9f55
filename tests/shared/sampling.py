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

    A tuple is the values of several parameters.
    """
    values = [item if isinstance(item, tuple) else (item,) for item in items]
    return [
        pytest.param(*each, marks=() if number % every == 0 else pytest.mark.nightly)
        for number, each in enumerate(values)
    ]


def strides(ordinary: int, nightly: int = 1) -> list[Any]:
    """Return how many of many one is taken of, for a test that goes through them by itself."""
    return [ordinary, pytest.param(nightly, marks=pytest.mark.nightly)]
