"""Records of ranks with two threads: the scenario that is written is, on each rank, its record."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from projections import in_order, of_program, of_record
from sampling import sampled

from torch_scenarios.record.format import read
from torch_scenarios.record.program import program_of

WORLD = 2

#: of each thread: is it a message, does it send, is it asynchronous, is its work waited for
CALLS = st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=4)
RANK = st.tuples(CALLS, CALLS, st.lists(st.booleans(), min_size=40, max_size=40), st.booleans())


def stream(rank: int, thread: int, calls: list[tuple[bool, ...]]) -> list[list[Any]]:
    """Return the events of a thread, without their times."""
    events: list[list[Any]] = []
    waits: list[list[Any]] = []
    for at, (is_message, is_sent, is_async, is_waited) in enumerate(calls):
        number = 10 * thread + at
        tensor = [["float32", [2 if is_message else 3], 64 * number, 8]]
        passed: list[Any] = ["allreduce_", tensor, [], {"op": "sum"}]
        if is_message:
            to = {"peer": (rank + 1) % WORLD, "tag": 0}
            passed = ["send", tensor, [], to] if is_sent else ["recv_", [], tensor, to]
        name, *more = passed
        events += [["c", number, name, 0, thread, thread, "py", *more], ["r", number]]
        if is_async and is_waited:
            waits += [["w", number], ["x", number]]
        elif not is_async:
            events += [["w", number], ["x", number]]
    return [*events, *waits]


def written(folder: Path, rank: int, mode: str, drawn: tuple[Any, ...]) -> None:
    """Write the record of a rank, whose threads' events are in the order that is drawn."""
    *threads, turns, is_over = drawn
    streams = [stream(rank, at, calls) for at, calls in enumerate(threads, 1)]
    about = {"scenario_record": 1, "rank": rank, "world_size": WORLD, "mode": mode, "cwd": "/me"}
    lines: list[Any] = [about, ["g", 0, "0", list(range(WORLD)), "default_pg", "fake"]]
    lines += [["s", at, "", [["/me/train.py", 10 * at, "x"]]] for at in (1, 2)]
    lines += [["b", 99, "init_process_group", 1, 0, {"thread": 1}], ["be", 99, 1, {}, None]]
    us = 10
    for turn in [*turns, *[True] * 40, *[False] * 40]:
        if not streams[turn]:
            continue
        us += 1
        event = streams[turn].pop(0)
        event.insert(5 if event[0] == "c" else 2, us)
        lines.append(event)
    if is_over:
        lines.append(["end", 0, us])
    text = "".join(f"{json.dumps(each)}\n" for each in lines)
    (folder / f"rank-{rank:05d}.jsonl").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("mode", sampled(["fake", "live"], 2))
@settings(deadline=None, max_examples=60, derandomize=True)
@given(ranks=st.tuples(RANK, RANK))
def test_each_thread_is_projected(mode: str, ranks: tuple[tuple[Any, ...], ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank, drawn in enumerate(ranks):
            written(folder, rank, mode, drawn)
        records = read(folder)
    program = program_of(records, name="train", folder="/me")
    found = of_program(program, Path("train.yaml"), sizes=True, world=WORLD)
    for rank, record in records.items():
        assert found[rank] == in_order(of_record(record, "/me", sizes=True)), program.text
