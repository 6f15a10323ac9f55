"""A predicted deadlock is confirmed at once and broken; anything else waits for the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.execution import Launcher, LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

#: nobody waits for this one: a test that did would be noticed
LONG = "timeout: 600s\n"

#: what the same processes run afterwards
AFTER = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"

#: on a busy machine a broken call may come back so late that its process is replaced
TRIES = 3

HANGS = {
    "both_send_first": """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
""",
    "a_rank_is_missing": """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: [0, 2], all_reduce: {tensor: x}}
""",
    "a_wait_for_what_never_comes": """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, irecv: {tensor: x, src: 1}, as: work}
  - wait: work
""",
    "groups_in_crossed_order": """\
world_size: 2
groups: {a: [0, 1], b: [0, 1]}
tensors: {x: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x, group: a}}
  - {ranks: 1, all_reduce: {tensor: x, group: b}}
  - {ranks: 0, all_reduce: {tensor: x, group: b}}
  - {ranks: 1, all_reduce: {tensor: x, group: a}}
""",
    "a_group_that_one_does_not_create": """\
world_size: 3
steps:
  - {ranks: [0, 1], new_group: {name: g, group_ranks: [0, 1, 2]}}
""",
    "inside_a_loop": """\
world_size: 2
tensors: {x: [1]}
steps:
  - for: {i: "range(5)"}
    steps:
      - {ranks: "rank == 0 or i < 3", all_reduce: {tensor: x}}
""",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_predicted_deadlock_is_confirmed_without_a_timeout(
    name: str, observe: Callable[[str], Trace], launcher: Launcher
) -> None:
    observe(HANGS["both_send_first"] + LONG)
    workers: tuple[int, ...] = ()
    for _ in range(TRIES):
        workers = launcher.processes()
        trace = observe(HANGS[name] + LONG)
        assert trace.outcome == "deadlock"
        assert trace.duration_s < 60
        stuck = [rank for rank in trace.ranks if rank.ending == "blocked"]
        assert stuck
        assert all(rank.events[-1].state == "blocked" for rank in stuck)
        assert all(rank.events[-1].end_s is None for rank in stuck)
        after = observe(AFTER)
        assert after.outcome == "completes"
        if launcher.processes() == workers:
            break
    assert launcher.processes() == workers


def test_what_happened_before_the_deadlock_is_told(observe: Callable[[str], Trace]) -> None:
    trace = observe(HANGS["inside_a_loop"] + LONG)
    waiting = trace.ranks[0]
    assert [event.iteration for event in waiting.events] == [(0,), (1,), (2,), (3,)]
    assert waiting.events[2].writes["x"].tolist() == [8]
    assert trace.ranks[1].ending == "finished"


def test_a_hang_that_a_step_expects_to_end_is_left_to_its_timeout(
    observe: Callable[[str], Trace],
) -> None:
    trace = observe(
        """\
world_size: 2
timeout: 0.3s
tensors: {x: [1]}
steps:
  - {ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: timeout}}
"""
    )
    (event,) = trace.ranks[0].events
    assert event.state == "raised"
    assert event.failure is not None
    assert event.failure.kinds == ("timeout",)
    assert event.end_s is not None
    assert event.end_s >= 0.3
    assert trace.outcome == "completes"


def test_the_timeout_can_be_asked_to_confirm(analysed: Callable[[str], AnalysedCase]) -> None:
    text = HANGS["both_send_first"] + "timeout: 0.3s\n"
    with Launcher(LaunchOptions(confirm="timeout")) as launcher:
        trace = analysed(text).run_on(launcher)
    assert trace.outcome == "deadlock"
    failures = [rank.events[-1].failure for rank in trace.ranks]
    assert "timeout" in {failure.kinds[0] for failure in failures if failure}


def test_ranks_that_wait_for_a_slow_one_are_not_deadlocked(
    observe: Callable[[str], Trace],
) -> None:
    trace = observe(
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 1, sleep: 0.5s}
  - all_reduce: {tensor: x}
  - {ranks: 0, recv: {tensor: x, src: 1}}
"""
    )
    assert trace.outcome == "deadlock"
    first = trace.ranks[0].events[0]
    assert first.state == "done"
    assert first.end_s is not None
    assert first.end_s > 0.45  # the clocks of two ranks differ by a little


def test_a_hang_that_nothing_predicted_is_blocked_after_its_timeout(
    launcher: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    hangs = analysed("timeout: 0.4s\n" + HANGS["a_rank_is_missing"])
    fine = analysed("world_size: 3\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n")
    trace = launcher.run(hangs.plan, fine.predicted)
    assert trace.outcome == "deadlock"
    assert [rank.ending for rank in trace.ranks] == ["blocked", "finished", "blocked"]
    assert trace.ranks[0].events[-1].failure is not None
