"""A timeline: who met whom, in which column, what was held; the same after writing and reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from random_programs import programs

import torch_scenarios
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.trace import Event, RankTrace, Trace
from torch_scenarios.timeline import (
    Timeline,
    TimelineError,
    ends_of,
    from_json,
    pack,
    timeline,
    to_json,
    unpack,
)
from torch_scenarios.timeline.build import Texts, columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_scenarios.timeline import Match, StepSpan

CORPUS = Path(__file__).parents[2] / "scenarios"

SMALL = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def predicted(text: str, folder: Path) -> Timeline:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    return of_file(path)


def of_file(path: Path) -> Timeline:
    scenario = torch_scenarios.load(path)[0]
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    return timeline(scenario, trace, trace)


def spans(found: Timeline, rank: int) -> tuple[StepSpan, ...]:
    return found.lanes[rank].spans


def column(found: Timeline, at: tuple[int, int]) -> int:
    return found.lanes[at[0]].spans[at[1]].column


def match(found: Timeline, label: str) -> Match:
    (one,) = [each for each in found.matches if each.label == label]
    return one


# ---------------------------------------------------------------------------- who met whom


def test_the_members_of_a_collective_share_a_column(tmp_path: Path) -> None:
    text = (
        "world_size: 3\ngroups: {pair: [0, 2]}\ntensors: {x: [1]}\nsteps:\n"
        "- {ranks: 2, compute: {x: x + 1}}\n- {all_reduce: {tensor: x, group: pair}}\n"
    )
    found = predicted(text, tmp_path)
    one = match(found, "all_reduce on pair")
    assert one.spans == one.completed == ((0, 0), (2, 1))
    assert (one.complete, one.missing) == (True, ())
    assert [column(found, at) for at in one.spans] == [1, 1]
    assert [span.group for span in spans(found, 2)] == [None, "pair"]
    assert spans(found, 1) == ()


def test_a_member_that_never_comes_is_missing() -> None:
    found = of_file(CORPUS / "reported/early_return.yaml")
    one = match(found, "its last line")
    assert (one.complete, one.missing) == (False, (2,))


def test_different_operations_at_one_position_are_one_meeting_that_is_not_complete() -> None:
    found = of_file(CORPUS / "wrong/call_mismatch/reduce_meets_broadcast.yaml")
    one = match(found, "all_reduce ≠ broadcast")
    assert (one.complete, one.missing, len(one.spans)) == (False, (), 2)


def test_a_blocking_message_stands_in_one_column_sender_first(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {ranks: 1, compute: {x: x + 1}}\n- {ranks: 1, send: {tensor: x, dst: 0, tag: 3}}\n"
        "- {ranks: 0, recv: {tensor: y, src: 1, tag: 3}}\n"
    )
    found = predicted(text, tmp_path)
    one = match(found, "1 → 0 tag 3")
    assert one.spans == ((1, 1), (0, 0))
    assert {column(found, at) for at in one.spans} == {1}


def test_an_asynchronous_receive_is_complete_where_it_is_waited_for() -> None:
    found = of_file(CORPUS / "p2p/halo_exchange.yaml")
    assert len(found.matches) == 6
    for one in found.matches:
        sender, receiver = one.spans[0], one.completed[1]
        assert found.lanes[receiver[0]].spans[receiver[1]].kind == "wait"
        assert column(found, sender) <= column(found, receiver)
        assert one.name in found.lanes[receiver[0]].spans[receiver[1]].matches


def test_a_handle_that_differs_by_rank_completes_the_right_call(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {ranks: 0, isend: {tensor: x, dst: 1}, as: a}\n"
        "- {ranks: 1, irecv: {tensor: y, src: 0}, as: b}\n- wait: {0: a, 1: b}\n"
    )
    found = predicted(text, tmp_path)
    assert match(found, "0 → 1").completed == ((0, 1), (1, 1))


def test_a_stuck_send_is_a_message_whose_receiver_is_missing() -> None:
    found = of_file(CORPUS / "p2p/both_send_first.yaml")
    told = {m.label: (m.spans, m.missing, m.complete) for m in found.matches}
    assert told == {"0 → 1": (((0, 0),), (1,), False), "1 → 0": (((1, 0),), (0,), False)}
    assert all(span.stuck for lane in found.lanes for span in lane.spans)


def test_the_names_of_messages_tell_their_ends() -> None:
    assert ends_of("world:0>1#7:2") == (0, 1)
    assert ends_of("mesh.dp#0:any>3#0:?1") == (None, 3)
    assert ends_of("world:3") is None


# ---------------------------------------------------------------------------- columns


def test_asynchronous_calls_in_crossed_groups_still_have_columns(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ngroups: {a: [0, 1], b: [0, 1]}\ntensors: {x: [1], y: [1]}\nsteps:\n"
        "- {ranks: 0, all_reduce: {tensor: x, group: a, async_op: true}, as: p}\n"
        "- {all_reduce: {tensor: y, group: b, async_op: true}, as: q}\n"
        "- {ranks: 1, all_reduce: {tensor: x, group: a, async_op: true}, as: p}\n"
        "- wait: [p, q]\n"
    )
    found = predicted(text, tmp_path)
    assert found.outcome == "completes"
    columns = {one.label: [column(found, at) for at in one.spans] for one in found.matches}
    assert columns == {"all_reduce on a": [0, 2], "all_reduce on b": [1, 1]}


def test_a_source_that_comes_too_late_does_not_hold_up_the_rest() -> None:
    # lane 0 must stand after lane 1's last, which must stand after lane 0's last
    assert columns_of([2, 2], [], [((1, 1), (0, 0)), ((0, 1), (1, 0))]) == [[0, 1], [1, 2]]


def test_two_spans_of_one_lane_that_belong_together_are_parted() -> None:
    assert columns_of([2, 1], [[(0, 0), (0, 1), (1, 0)]], []) == [[0, 1], [1]]


@given(text=programs(wrong=True) | programs(wrong=False))
@SMALL
def test_columns_grow_and_meetings_stand_together(text: str, tmp_path: Path) -> None:
    found = predicted(text, tmp_path)
    for lane in found.lanes:
        columns = [span.column for span in lane.spans]
        assert columns == sorted(set(columns))
        assert all(0 <= each < found.columns for each in columns)
    for one in found.matches:
        if one.kind == "message" and one.complete:
            assert column(found, one.spans[0]) <= column(found, one.completed[1])
        ranks = [found.lanes[lane].rank for lane, _ in one.spans]
        assert not set(ranks) & set(one.missing)
        for at, position in (*one.spans, *one.completed):
            assert one.name in found.lanes[at].spans[position].matches


# ---------------------------------------------------------------------------- who waits for whom


def test_the_ring_is_marked_in_the_wait_for_graph() -> None:
    found = of_file(CORPUS / "reported/two_groups_crossed.yaml")
    assert found.faults[0].name == "group_order"
    assert {(e.waiter, e.peer) for e in found.edges if e.cycle} == {(0, 2), (2, 3), (3, 1), (1, 0)}


def test_ranks_stuck_in_a_wait_have_edges_too() -> None:
    found = of_file(CORPUS / "wrong/circular_wait/wait_too_early.yaml")
    told = [(e.waiter, e.peer, e.because, e.cycle) for e in found.edges]
    assert told == [(0, 1, "to send", True), (1, 0, "to send", True)]


def test_the_edges_of_a_receive_from_anyone_are_not_sure() -> None:
    found = of_file(CORPUS / "wrong/unmatched_recv/from_anyone_and_nobody.yaml")
    assert {(e.waiter, e.peer, e.sure) for e in found.edges} == {(0, 1, False), (0, 2, False)}


# ---------------------------------------------------------------------------- observed runs


PAIR = (
    "world_size: 2\ntensors: {x: [1]}\nsteps:\n"
    "- {for: {i: '[0, 0]'}, steps: [{all_reduce: {tensor: x}}]}\n- {barrier: {}}\n"
)


def observed(folder: Path, events: Mapping[int, tuple[Event, ...]], text: str = PAIR) -> Timeline:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    foreseen = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    ranks = tuple(RankTrace(rank=rank, events=events[rank]) for rank in sorted(events))
    trace = Trace(backend="gloo", outcome="completes", ranks=ranks, duration_s=0.5)
    return timeline(scenario, trace, foreseen)


def test_an_observed_event_meets_as_the_same_occurrence_was_predicted_to(tmp_path: Path) -> None:
    again = tuple(
        Event(index=1, label="all_reduce", iteration=(0,), start_s=at, end_s=at + 0.1)
        for at in (0.0, 0.2)
    )
    found = observed(tmp_path, {0: again, 1: again})
    assert (found.witness, found.backend) == ("observed", "gloo")
    assert [[s.matches for s in lane.spans] for lane in found.lanes] == [
        [("world:0",), ("world:1",)]
    ] * 2
    assert found.lanes[0].initial == {"x": "[1]"}  # of the prediction, where the run does not say


def test_a_rank_that_told_nothing_is_named_by_what_it_stands_in(tmp_path: Path) -> None:
    stuck = (Event(index=2, label="step 2", state="blocked"),)
    found = observed(tmp_path, {0: stuck, 1: ()})
    assert spans(found, 0)[0].label == "barrier"
    assert match(found, "barrier").missing == (1,)


def test_no_one_waits_in_a_run_that_went_on_where_the_prediction_stands(tmp_path: Path) -> None:
    text = (CORPUS / "p2p/both_send_first.yaml").read_text(encoding="utf-8")
    sent = {
        0: (Event(index=0, label="send to 1", end_s=0.1),),
        1: (Event(index=1, label="send to 0", state="blocked"),),
    }
    found = observed(tmp_path, sent, text)
    assert {edge.waiter for edge in found.edges} == {1}


# ---------------------------------------------------------------------------- values as text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1, 2.5], "float32"), "[1, 2.5]"),
        (np.array([[1, 2], [3, 4]], "int64"), "[[1, 2], [3, 4]] int64"),
        (np.float32(7).reshape(()), "7"),
        (np.array([], "float32"), "[]"),
        (np.array([True, False]), "[True, False] bool"),
        (np.array([np.nan, np.inf], "float32"), "[nan, inf]"),
        (np.array([1 + 2j], "complex64"), "[1+2j] complex64"),
        (np.full((4, 1024), 6, "float32"), "float32[4, 1024] all 6"),
        (np.arange(4096, dtype="int32"), "int32[4096] 0, 1, 2, 3, …, 4095"),
        ([np.array([1.0], "float32"), np.array([2.0], "float32")], "[[1], [2]]"),
        ({"step": 3}, "{'step': 3}"),
        (Undefined(cause="reduce off its destination"), "undefined (reduce off its destination)"),
    ],
)
def test_a_value_is_short_text(value: object, text: str) -> None:
    assert Texts().of(value) == text


def test_small_dtypes_show_their_numbers(tmp_path: Path) -> None:
    text = (
        "world_size: 1\ntensors: {x: {dtype: bfloat16, value: [1.5]}}\nsteps:\n"
        "- {compute: {x: x * 2}}\n"
    )
    found = predicted(text, tmp_path)
    assert (found.lanes[0].initial, spans(found, 0)[0].values) == (
        {"x": "[1.5] bfloat16"},
        {"x": "[3] bfloat16"},
    )


def test_long_words_are_cut() -> None:
    assert len(Texts().of("a" * 1000)) == 160


# ---------------------------------------------------------------------------- writing and reading


@pytest.mark.parametrize(
    "name",
    [
        "p2p/halo_exchange.yaml",
        "p2p/from_anyone.yaml",
        "reported/two_groups_crossed.yaml",
        "reported/asymmetric_batch.yaml",
        "language/use_ring_all_reduce.yaml",
        "faults/killed_peer.yaml",
        "wrong/invalid_argument/two_roots.yaml",
    ],
)
def test_what_was_written_is_read_as_it_was(name: str) -> None:
    found = of_file(CORPUS / name)
    assert from_json(to_json(found)) == found


@given(text=programs(wrong=True) | programs(wrong=False))
@SMALL
def test_every_timeline_survives_json(text: str, tmp_path: Path) -> None:
    found = predicted(text, tmp_path)
    assert from_json(to_json(found)) == found


def refused(text: str) -> str:
    with pytest.raises(TimelineError) as raised:
        from_json(text)
    return str(raised.value)


def test_what_is_no_timeline_is_refused_with_the_reason(tmp_path: Path) -> None:
    found = pack(predicted(PAIR, tmp_path))
    text = json.dumps(found)
    assert refused(text[: len(text) // 2]).startswith("this is not JSON, or only a part of it")
    assert refused("[]") == "this is not a timeline of torch-scenarios"
    assert refused('{"format": "junit"}') == "this is not a timeline of torch-scenarios"
    assert refused(json.dumps({**found, "version": 2})) == (
        "this timeline has version 2; version 1 is read here"
    )
    assert refused(json.dumps({**found, "texts": []})).startswith("this timeline is damaged")
    assert refused(json.dumps({**found, "lanes": 3})).startswith("this timeline is damaged")


def test_a_large_run_is_stored_in_few_bytes_for_each_span(tmp_path: Path) -> None:
    text = (
        'world_size: 16\ntensors: {x: "full(1000, rank)"}\nsteps:\n'
        '- {for: {i: "range(50)"}, steps: [{all_reduce: {tensor: x, op: max}}, '
        '{compute: {x: "x * 0 + i + rank"}}]}\n'
    )
    found = predicted(text, tmp_path)
    assert sum(len(lane.spans) for lane in found.lanes) == 1600
    assert len(to_json(found)) < 100 * 1600


def test_a_timeline_holds_no_tensor(tmp_path: Path) -> None:
    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(plain(item) for item in value.values())
        if isinstance(value, list | tuple):
            return all(plain(item) for item in value)
        return value is None or isinstance(value, str | int | float | bool)

    found = pack(predicted(PAIR, tmp_path))
    assert plain(found)
    assert replace(unpack(found), case="other").case == "other"
