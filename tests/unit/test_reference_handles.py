"""Handles in the reference: what is dropped, or waited for twice, and what that leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked
from traces import run_together

import torch_scenarios
from torch_scenarios.limits import DEFAULT
from torch_scenarios.reference.vector import CohortError

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

HEAD = "world_size: 2\ntensors: {x: [1, 2], y: [0, 0]}\nsteps:\n"
SEND = "- {ranks: 0, isend: {tensor: x, dst: 1}, as: h}\n"
BARE = "- {ranks: 0, isend: {tensor: x, dst: 1}}\n"
RECV = "- {ranks: 1, recv: {tensor: y, src: 0}}\n"
SUM = "- {all_reduce: {tensor: x, async_op: true}, as: h}\n"
WAIT = "- {wait: h}\n"


def predicted(steps: str, folder: Path) -> Trace:
    trace = checked(HEAD + steps, folder).predicted
    assert trace is not None
    return trace


def names(trace: Trace) -> list[str]:
    return [diagnosis.name for diagnosis in trace.diagnoses]


DROPPED = {
    "without_a_name": BARE + RECV,
    "a_name_given_anew": SEND
    + SEND.replace("dst: 1", "dst: 1, tag: 1")
    + RECV
    + RECV.replace("src: 0", "src: 0, tag: 1")
    + WAIT,
    "to_the_end": SEND + RECV,
    "a_batch": "- {ranks: 0, batch_isend_irecv: [{op: isend, tensor: x, peer: 1}]}\n" + RECV,
    "a_receive": "- {ranks: 1, irecv: {tensor: y, src: 0}}\n"
    "- {ranks: 0, send: {tensor: x, dst: 1}}\n",
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_dropped_message_leaves_a_deadlock_open(name: str, tmp_path: Path) -> None:
    trace = predicted(DROPPED[name], tmp_path)
    assert (names(trace), trace.outcome, trace.open) == (
        ["missing_wait"],
        "completes",
        ("deadlock",),
    )
    assert any(rank.may_block for rank in trace.ranks)


SURE = {
    "nobody_receives": (SEND, ["unmatched_send", "missing_wait"]),
    "nobody_waits_on_either_side": (
        SEND + "- {ranks: 1, irecv: {tensor: y, src: 0}}\n",
        ["missing_wait", "missing_wait"],
    ),
    "a_collective": (SUM, ["missing_wait"]),
    "a_collective_without_a_name": (
        "- {all_reduce: {tensor: x, async_op: true}}\n",
        ["missing_wait"],
    ),
    "a_collective_whose_name_is_given_anew": (
        SUM + SUM.replace("tensor: x", "tensor: y") + WAIT,
        ["missing_wait"],
    ),
}


@pytest.mark.parametrize("name", SURE)
def test_what_holds_up_no_rank_is_sure_to_complete(name: str, tmp_path: Path) -> None:
    steps, found = SURE[name]
    trace = predicted(steps, tmp_path)
    assert (names(trace), trace.outcome, trace.open) == (found, "completes", ())


def test_a_handle_that_is_waited_for_before_its_name_is_given_anew_is_kept(tmp_path: Path) -> None:
    trace = predicted((SEND + RECV + WAIT) * 2, tmp_path)
    assert (names(trace), trace.open) == ([], ())


def test_what_a_stuck_rank_dropped_is_told_too(tmp_path: Path) -> None:
    trace = predicted(BARE + RECV + "- {ranks: 0, barrier: {}}\n", tmp_path)
    assert set(names(trace)) == {"missing_wait", "missing_participant"}
    kept = predicted(SEND + RECV + "- {ranks: 0, barrier: {}}\n" + WAIT, tmp_path)
    assert names(kept) == ["missing_participant"]


TWICE = {
    "one_after_the_other": SEND + RECV + WAIT + WAIT,
    "in_one_step": SEND + RECV + "- {wait: [h, h]}\n",
    "in_a_loop": SEND + RECV + "- {for: {i: range(2)}, steps: [wait: h]}\n",
    "a_batch": "- {batch_isend_irecv: [{op: isend, tensor: x, peer: 1 - rank}, "
    "{op: irecv, tensor: y, peer: 1 - rank}], as: h}\n" + WAIT + WAIT,
    "a_receive": "- {ranks: 0, send: {tensor: x, dst: 1}}\n"
    "- {ranks: 1, irecv: {tensor: y, src: 0}, as: h}\n" + WAIT + WAIT,
}


@pytest.mark.parametrize("name", TWICE)
def test_a_second_wait_for_a_message_may_never_return(name: str, tmp_path: Path) -> None:
    steps = (
        TWICE[name]
        .replace("ranks: 0, send", "ranks: 0, isend")
        .replace("{tensor: x, dst: 1}}", "{tensor: x, dst: 1}, as: h}")
    )
    trace = predicted(steps, tmp_path)
    assert (names(trace), trace.outcome, trace.open) == (
        ["double_wait"],
        "completes",
        ("deadlock",),
    )


def test_a_second_wait_for_a_collective_returns(tmp_path: Path) -> None:
    trace = predicted(SUM + WAIT + WAIT, tmp_path)
    assert (names(trace), trace.outcome, trace.open) == ([], "completes", ())


EACH = (
    "- {for: {t: range(3)}, steps: ["
    "{ranks: 0, isend: {tensor: x, dst: 1, tag: t}, as: 'up[t]'}, "
    "{ranks: 1, recv: {tensor: y, src: 0, tag: t}}]}\n"
)

INDEXED = {
    "all_together": ("- {wait: up}\n", []),
    "one_by_one": ("- {for: {t: range(3)}, steps: [wait: 'up[2 - t]']}\n", []),
    "one_first": ("- {wait: 'up[1]'}\n- {wait: up}\n", []),
    "in_a_list": ("- {wait: ['up[0]', 'up[1]', 'up[1 + 1]']}\n", []),
    "one_left": ("- {wait: ['up[0]', 'up[2]']}\n", ["missing_wait"]),
    "one_twice": ("- {wait: ['up[0]', 'up[0]']}\n- {wait: up}\n", ["double_wait"]),
    "all_twice": ("- {wait: up}\n- {wait: up}\n", ["double_wait"]),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_makes_a_handle_of_its_own(name: str, tmp_path: Path) -> None:
    waits, found = INDEXED[name]
    trace = predicted(EACH + waits, tmp_path)
    assert (names(trace), trace.outcome) == (found, "completes")
    assert trace.open == (("deadlock",) if found else ())


def test_an_index_given_anew_drops_the_work_before(tmp_path: Path) -> None:
    again = EACH.replace("up[t]", "up[0]")
    assert names(predicted(again + "- {wait: up}\n", tmp_path)) == ["missing_wait"]


@pytest.mark.parametrize("steps", [*DROPPED.values(), *TWICE.values()])
def test_the_engine_for_many_ranks_leaves_it_to_the_other(steps: str, tmp_path: Path) -> None:
    path = tmp_path / "left.yaml"
    path.write_text(HEAD + steps, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    with pytest.raises(CohortError):
        run_together(torch_scenarios.plan(scenario), DEFAULT)
