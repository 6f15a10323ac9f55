"""What a rank wrote into columns arrives as the events that it was."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torch_scenarios.execution.protocol import SMALL_BYTES as SMALL
from torch_scenarios.execution.protocol import Columns, RankAccount
from torch_scenarios.model.trace import Event, Failure

VALUES = (
    np.array(2.5, np.float32),
    np.arange(4, dtype=np.float32),
    np.arange(4, dtype=np.float32) + 1,
    np.arange(6, dtype=np.int64).reshape(2, 3).T,
    np.zeros((0, 3), np.float64),
    np.arange(3).astype(ml_dtypes.bfloat16),
    np.zeros(SMALL + 1, np.uint8),
    [np.ones(2), np.zeros(3)],
    [{"a": [1, "b"]}],
    7,
)
times = st.floats(min_value=0, max_value=1e6)
values = st.sampled_from(range(len(VALUES)))
events = st.builds(
    Event,
    index=st.integers(-1, 3),
    label=st.sampled_from(["send to 1", "wait h"]),
    iteration=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    state=st.sampled_from(["done", "done", "done", "raised", "blocked"]),
    start_s=times,
    end_s=st.none() | times,
    complete_s=st.none() | times,
    failure=st.none() | st.just(Failure(kinds=("timeout",), message="late")),
    writes=st.dictionaries(st.sampled_from("xyz"), values.map(VALUES.__getitem__), max_size=2),
    observed=st.dictionaries(st.just("x[0]"), st.integers(), max_size=1),
)


def account(told: list[Event]) -> RankAccount:
    """Write events into columns, as a board does with its records."""
    columns = Columns()
    written: list[Any] = []
    for event in told:
        other = {
            name: getattr(event, name)
            for name in ("state", "failure", "observed")
            if getattr(event, name) != getattr(Event(index=0, label=""), name)
        }
        kind = (event.index, event.label, tuple(event.writes))
        seconds = (event.start_s, event.end_s, event.complete_s)
        columns.add(kind, event.iteration, seconds, other or None)
        written += event.writes.values()
    columns.write(written)
    return RankAccount(columns)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool(np.all(one == other))
    if isinstance(one, list) and len(one) == len(other):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other and type(one) is type(other))


@given(st.lists(events, max_size=8))
def test_what_arrives_is_what_was_told(told: list[Event]) -> None:
    here = account(told)
    there = pickle.loads(pickle.dumps(here, protocol=5))  # noqa: S301 -- our own
    assert isinstance(there, RankAccount)
    assert len(here) == len(there) == len(told)
    for event, found, arrived in zip(told, here, there, strict=True):
        for field in Event.__struct_fields__:
            wanted = getattr(event, field)
            assert same(wanted, getattr(found, field)), field
            assert same(wanted, getattr(arrived, field)), field


def test_many_small_arrays_travel_as_one() -> None:
    told = [
        Event(index=0, label="all_reduce", iteration=(place,), writes={"x": np.ones(4) * place})
        for place in range(1000)
    ]
    raw = len(told) * 4 * 8
    sent = pickle.dumps(account(told), protocol=5)
    assert len(sent) < 3 * raw
    # passed on by a process that does not look into it, they are as small as before
    assert len(pickle.dumps(pickle.loads(sent), protocol=5)) == len(sent)  # noqa: S301 -- our own
    assert len(pickle.dumps(tuple(told), protocol=5)) > 3 * raw
