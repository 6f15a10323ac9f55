"""The memory of a planned step is what torch's own tracker says of a script of the same sizes."""

from __future__ import annotations

import pytest

from benchmarks.tracked_memory import (
    FIRST,
    GROUPS,
    KEPT,
    LATER,
    MIXED,
    WHOLE,
    plan_case,
    track_case,
)

CASES = {**FIRST, **LATER, **KEPT, **GROUPS, **WHOLE, **MIXED}
#: with tensor groups, and a loss that takes most
QUICK = "8 layers of 8B, TP 4"
#: of many small experts the gradients are there at one time, which is not in the formula
ROUGH = ("12 layers of 64 experts", "12 layers of 64 experts, 4 sequences, recomputed")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each == QUICK else pytest.mark.nightly) for each in CASES],
)
def test_memory_is_what_torch_tracks(name: str) -> None:
    near = 0.1 if name in ROUGH else 0.05
    assert plan_case(CASES[name]) == pytest.approx(track_case(CASES[name]), rel=near)
