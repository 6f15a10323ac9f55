"""What the order of a reduction may change, and what later steps make of it."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from judging import at_step, codes, loaded, ran
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.trace import Event, Trace

#: three ranks add what float32 cannot represent; then the sum is changed, carried, and added again
PROGRAM = """\
world_size: 3
tensors: {x: "full(4, rank + 0.1)", y: "zeros(4)", z: "zeros(4)"}
steps:
  - all_reduce: {tensor: x}
  - compute: {d: "1000 * (x - 3.3)"}
  - {ranks: 0, send: {tensor: d, dst: 1}}
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - compute: {z: "concat([d[1:], d[:1]])"}
  - all_reduce: {tensor: z}
expect:
  d: {else: "zeros(4)"}
"""
EXACT = PROGRAM.replace("rank + 0.1", "rank + 1").replace("x - 3.3", "x - 6")

#: large numbers that cancel: the slack is larger than the result
CANCELLED = """\
world_size: 3
tensors: {x: {0: [1e8], 1: [1], 2: [-1e8]}}
steps:
  - all_reduce: {tensor: x}
"""

#: by how many roundings of the first sum (about 3.3 in float32) a run is off
ROUNDING = 2.0**-22


def off(steps: dict[int, str], by: float) -> Callable[[Trace], Trace]:
    """Let what some steps write be off on every rank that takes them."""

    def changed(trace: Trace) -> Trace:
        for index, name in steps.items():
            for rank in range(3):
                trace = at_step(index, rank, partial(moved, name=name, by=by))(trace)
        return trace

    return changed


def moved(event: Event, name: str, by: float) -> Event:
    if name not in event.writes:
        return event
    value = np.asarray(event.writes[name])
    return replace(event, writes={**event.writes, name: value + value.dtype.type(by)})


DOWNSTREAM = {1: "d", 3: "y", 4: "z"}


def test_what_a_rounding_becomes_later_is_allowed(tmp_path: Path) -> None:
    apart = off(DOWNSTREAM, 1000 * ROUNDING)
    assert ran(PROGRAM, tmp_path, apart).findings == ()


@pytest.mark.parametrize("index", [1, 3, 4])
def test_what_no_rounding_explains_is_none(tmp_path: Path, index: int) -> None:
    found = ran(PROGRAM, tmp_path, off({index: DOWNSTREAM[index]}, 0.5))
    assert "value_differs" in codes(found)


def test_a_reduction_may_be_off_by_its_own_slack_and_no_further(tmp_path: Path) -> None:
    _, predicted = loaded(CANCELLED, tmp_path)
    slack = float(np.max(predicted.ranks[0].events[0].slack["x"]))
    assert slack > 1
    assert ran(CANCELLED, tmp_path, off({0: "x"}, slack)).findings == ()
    assert "value_differs" in codes(ran(CANCELLED, tmp_path, off({0: "x"}, 1.5 * slack)))


def test_what_is_exact_may_not_move_at_all(tmp_path: Path) -> None:
    found = ran(EXACT, tmp_path, off({1: "d"}, 1000 * ROUNDING))
    assert codes(found).count("value_differs") >= 1


def test_a_tolerance_that_the_author_states_holds(tmp_path: Path) -> None:
    apart = off({1: "d"}, 1000 * ROUNDING)
    text = PROGRAM.replace('d: {else: "zeros(4)"}', "d: {value: zeros(4), atol: 0.01}")
    assert ran(text, tmp_path, apart).findings == ()
    close = PROGRAM.replace('d: {else: "zeros(4)"}', "d: {value: zeros(4), atol: 1e-7, rtol: 0}")
    assert codes(ran(close, tmp_path, apart, reference=False)) == ["value_differs"]


def test_drift_is_the_same_each_time_and_is_not_pickled(tmp_path: Path) -> None:
    _, predicted = loaded(PROGRAM, tmp_path)
    assert predicted.drift is not None
    first, again = predicted.drift(1, (3, ()), "y"), predicted.drift(1, (3, ()), "y")
    assert first.tolist() == again.tolist()
    assert (first > 0).all()
    assert predicted.drift(1, None, "y").tolist() == first.tolist()
    assert predicted.drift(1, (99, ()), "y") is None
    assert pickle.loads(pickle.dumps(predicted)).drift is None  # noqa: S301 -- our own


def test_nothing_drifts_in_a_program_of_integers(tmp_path: Path) -> None:
    _, predicted = loaded(EXACT, tmp_path)
    assert predicted.drift is not None
    assert predicted.drift(0, (1, ()), "d") is None
