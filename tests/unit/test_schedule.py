"""Streams of a rank as one list: what begins when, what waits, and whose part a twin takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch_scenarios.record.format import (
    LaneEvent,
    RankRecord,
    RecordedCall,
    RecordedKernels,
    RecordedWait,
    ScriptPlace,
    Tensor,
    read_file,
)
from torch_scenarios.record.kernels.schedule import add_twins, take_last_step
from torch_scenarios.record.program import program_of

WORLD = (0, 1)


def call(number: int, operation: str = "all_reduce", **fields: Any) -> RecordedCall:
    tensor = Tensor(dtype="float32", shape=(1024,), size=4096)
    given: dict[str, Any] = {"group": WORLD, "group_name": "0", "completes": True} | fields
    given |= {"inputs": (tensor,), "outputs": (tensor,)}
    return RecordedCall(number=number, operation=operation, place=ScriptPlace(), **given)


def record(*events: Any, world: int = 2, **fields: Any) -> RankRecord:
    """Return the record of events in order: calls and waits, or `(kind, numbers)` of streams."""
    items: list[Any] = []
    lanes = []
    names = {
        "kernels": ("us",),
        "on": ("lane",),
        "mark": ("mark", "lane"),
        "await": ("lane", "mark"),
    }
    for event in events:
        if isinstance(event, tuple):
            kind, *values = event
            told = dict(zip(names.get(kind, ()), values, strict=True))
            lanes.append(LaneEvent(before=len(items), kind=kind, **told))
        else:
            items.append(event)
    return RankRecord(rank=0, world_size=world, items=items, lanes=lanes, ending="ended", **fields)


def shown(found: RankRecord) -> list[str]:
    words = []
    for item in found.items:
        if isinstance(item, RecordedKernels):
            words.append(f"{item.us:g} us")
        elif isinstance(item, RecordedWait):
            words.append(f"wait {', '.join(map(str, item.numbers))}")
        elif isinstance(item, RecordedCall):
            words.append(f"{'call' if item.completes else 'begin'} {item.number}")
    return words


def test_a_gather_on_its_stream_begins_before_the_kernels_that_the_script_makes_before_it() -> None:
    layer = [("mark", 0, 0), ("kernels", 10.0), ("on", 1), call(7), ("mark", 1, 1), ("on", 0)]
    found = take_last_step(record(*layer, ("await", 0, 1), ("kernels", 20.0)))
    assert shown(found) == ["begin 7", "10 us", "wait 7", "20 us"]


def test_a_gather_begins_no_earlier_than_the_event_that_its_stream_waits_for() -> None:
    found = take_last_step(
        record(
            *(("kernels", 1.0), ("mark", 0, 0), ("kernels", 10.0), ("await", 1, 0)),
            *(("on", 1), call(7), ("mark", 1, 1), ("on", 0), ("await", 0, 1), ("kernels", 20.0)),
        )
    )
    assert shown(found) == ["1 us", "begin 7", "10 us", "wait 7", "20 us"]


def test_a_call_on_the_main_stream_waits_for_all_before_it() -> None:
    found = take_last_step(record(("kernels", 10.0), call(1), ("kernels", 5.0)))
    assert shown(found) == ["10 us", "call 1", "5 us"]


def test_work_that_is_waited_for_later_goes_on_meanwhile() -> None:
    begun = call(1, completes=False)
    wait = RecordedWait(numbers=(1,))
    found = take_last_step(
        record(("kernels", 10.0), begun, ("kernels", 5.0), wait, ("kernels", 1.0))
    )
    assert shown(found) == ["10 us", "begin 1", "5 us", "wait 1", "1 us"]


def test_what_no_kernel_waits_for_is_waited_for_at_the_end() -> None:
    found = take_last_step(record(call(1, completes=False), ("kernels", 5.0)))
    assert shown(found) == ["begin 1", "5 us", "wait 1"]


def test_calls_of_one_group_keep_the_order_of_the_script() -> None:
    # a scatter on stream 2 needs the kernels; the gather on stream 1 after it needs nothing
    found = take_last_step(
        record(
            *(("kernels", 10.0), ("mark", 0, 0), ("await", 2, 0), ("on", 2), call(1), ("on", 1)),
            *(call(2), ("on", 0), ("kernels", 20.0)),
        )
    )
    assert shown(found) == ["10 us", "begin 1", "begin 2", "20 us", "wait 1, 2"]


def test_kernels_behind_a_call_on_its_stream_wait_for_it_and_the_main_stream_goes_on() -> None:
    found = take_last_step(
        record(
            *(("kernels", 10.0), ("mark", 0, 0), ("await", 2, 0), ("on", 2), call(1)),
            *(("kernels", 3.0), ("mark", 1, 2), ("on", 0), ("kernels", 20.0)),
            *(("await", 0, 1), ("kernels", 5.0)),
        )
    )
    assert shown(found) == ["10 us", "begin 1", "20 us", "wait 1", "8 us"]


def test_a_call_that_needs_one_of_another_group_begins_once_that_is_waited_for() -> None:
    other = call(2, group_name="1")
    found = take_last_step(
        record(
            *(("on", 1), call(1), ("mark", 0, 1), ("await", 2, 0), ("on", 2), other),
            *(("mark", 1, 2), ("on", 0), ("kernels", 10.0), ("await", 0, 1), ("kernels", 5.0)),
        )
    )
    assert shown(found) == ["begin 1", "10 us", "wait 1", "call 2", "5 us"]


def test_a_host_that_waits_begins_nothing_before() -> None:
    found = take_last_step(
        record(("kernels", 10.0), ("host",), ("on", 1), call(1), ("on", 0), ("kernels", 5.0))
    )
    assert shown(found) == ["10 us", "begin 1", "5 us", "wait 1"]


def test_the_last_step_of_an_optimizer_is_what_is_left() -> None:
    events = [
        each
        for at in range(3)
        for each in (("kernels", 10.0 + at), call(at), ("kernels", 1.0), ("step",))
    ]
    assert shown(take_last_step(record(*events))) == ["12 us", "call 2", "1 us"]


def test_a_twin_is_in_the_groups_along_the_same_dimensions() -> None:
    groups = {0: ("0", (0, 1), "tp"), 1: ("1", (0, 2), "dp")}
    one = record(
        call(0, group=(0, 1)), call(1, group=(0, 2), group_name="1"), groups=groups, world=4
    )
    found = add_twins({0: one})
    assert found is not None
    assert {rank: [each[1] for each in own.groups.values()] for rank, own in found.items()} == {
        0: [(0, 1), (0, 2)],
        1: [(0, 1), (1, 3)],
        2: [(2, 3), (0, 2)],
        3: [(2, 3), (1, 3)],
    }
    assert [each.group for each in found[3].calls] == [(2, 3), (1, 3)]


def test_a_group_off_the_dimensions_of_a_mesh_has_no_twin() -> None:
    assert add_twins({0: record(groups={0: ("0", (0, 1, 3), "")}, world=4)}) is None


def test_the_program_has_the_times_the_true_sizes_and_what_is_held() -> None:
    step = take_last_step(
        record(
            *(("kernels", 1234567.0), call(0), ("kernels", 2.5)),
            groups={0: ("0", WORLD, "default_pg")},
            held={"parameters": 100, "activations": 5000},
        )
    )
    whole = add_twins({0: step})
    assert whole is not None
    text = program_of(whole, is_timed=True).text
    assert "- {compute: {time: 1.235s}}" in text
    assert "- {compute: {time: 2.5us}}" in text
    assert "held_parameters: {shape: 100, value: 0, dtype: uint8}" in text
    # the call's own 4096 bytes are among them
    assert "held_activations: {shape: 904, value: 0, dtype: uint8}" in text


def test_a_record_whose_hosts_wait_without_a_line_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.jsonl"
    about = {"scenario_record": 2, "rank": 0, "world_size": 2}
    where = ["s", 0, "item", [["train.py", 7, "loss.item()"]]]
    older, newer = (["q", 10.0], ["h"], ["q", 5.0]), (["q", 10.0, 2.0], ["h", 0, 0], ["q", 5.0])
    read = []
    for lines in (older, newer):
        path.write_text("".join(f"{json.dumps(each)}\n" for each in (about, where, *lines)))
        read.append(take_last_step(read_file(path)).items)
    (together,), apart = read
    assert isinstance(together, RecordedKernels)
    assert together.us == 15
    assert [getattr(each, "synchronizes", None) for each in apart] == [True, False]
