"""The memory of a planned step is what torch's own tracker says of a script of the same sizes."""

from __future__ import annotations

import pytest

from benchmarks.tracked_memory import FIRST, KEPT, LATER, plan_case, track_case

CASES = {**FIRST, **LATER, **KEPT}
#: one whose loss is what takes most, one whose backward pass is, and one whose weights stay whole
QUICK = (
    "4 layers of 8B",
    "8 layers of 8B, 512 tokens, 4 GPUs",
    "8 layers of 8B, weights whole",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.nightly) for each in CASES],
)
def test_memory_is_what_torch_tracks(name: str) -> None:
    assert plan_case(CASES[name]) == pytest.approx(track_case(CASES[name]), rel=0.05)
