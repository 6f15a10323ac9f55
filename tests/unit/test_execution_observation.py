"""From what the ranks told, and from the prediction: the outcome, and what to watch for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.protocol import RankReport, WorldFailed
from torch_scenarios.execution.supervisor import (
    BETWEEN_HOSTS_S,
    Findings,
    longest_timeout,
    observe,
    replace_timeout,
    watch_for,
)
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Event, Failure, RankTrace, Trace
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path

PAIR = "world_size: 2\ntensors: {x: [1]}\nsteps:\n"


def planned(text: str, folder: Path) -> Plan:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return plan(scenario)


def raised(rank: int, kind: str) -> RankReport:
    event = Event(index=0, label="recv", state="raised", end_s=1.0, failure=Failure(kinds=(kind,)))
    trace = RankTrace(rank=rank, events=(event,), ending="raised")
    return RankReport(rank=rank, trace=trace, backend="gloo")


def ended(rank: int, ending: str = "finished") -> RankReport:
    return RankReport(rank=rank, trace=RankTrace(rank=rank, ending=ending), backend="gloo")


def findings(*told: RankReport, died: dict[int, str] | None = None) -> Findings:
    return Findings(
        told={each.rank: each for each in told}, stuck={}, unable={}, died=died or {}, usable=True
    )


def outcome(
    plan_: Plan,
    *told: RankReport,
    died: dict[int, str] | None = None,
    predicted: Trace | None = None,
) -> str:
    return observe(plan_, findings(*told, died=died), predicted or simulate(plan_)).outcome


def test_a_timeout_that_nobody_asked_for_is_a_deadlock(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)
    assert outcome(program, raised(0, "timeout"), raised(1, "peer_lost")) == "deadlock"
    assert outcome(program, raised(0, "timeout"), ended(1)) == "deadlock"


def test_who_waits_for_a_late_rank_is_not_blocked(tmp_path: Path) -> None:
    text = PAIR.replace("steps:", "timeout: 1s\nsteps:\n  - {ranks: 0, sleep: 2s}", 1)
    program = planned(text + "  - all_reduce: {tensor: x}\n", tmp_path)
    assert outcome(program, raised(0, "peer_lost"), raised(1, "timeout")) == "error"


def test_a_timeout_that_the_end_states_is_an_error(tmp_path: Path) -> None:
    text = PAIR + "  - {ranks: 0, recv: {tensor: x, src: 1}}\n"
    program = planned(text + "expect: {outcome: error, raises: {0: timeout}}\n", tmp_path)
    assert outcome(program, raised(0, "timeout"), ended(1)) == "error"


def test_a_lost_peer_is_an_error_where_nobody_timed_out(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)
    assert outcome(program, raised(0, "peer_lost"), raised(1, "other")) == "error"


def test_a_death_is_a_crash_whatever_the_others_say(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)
    for how in ("SIGSEGV", "SIGABRT", "exit 1"):
        assert outcome(program, raised(0, "peer_lost"), died={1: how}) == "crash"


def test_a_death_that_its_rank_announced_is_a_step_of_its_own(tmp_path: Path) -> None:
    program = planned(PAIR + "  - {ranks: 1, fault: kill}\n", tmp_path)
    own = RankReport(rank=1, trace=RankTrace(rank=1, ending="died", died="SIGKILL"), backend="gloo")
    assert outcome(program, ended(0), own, died={1: "SIGKILL"}) == "crash"


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_a_death_that_neither_a_step_nor_the_backend_caused_is_the_environments(
    how: str, tmp_path: Path
) -> None:
    program = planned(PAIR + "  - {ranks: 0, fault: kill}\n", tmp_path)
    with pytest.raises(LaunchError, match=f"rank 1 was killed from outside by {how}"):
        outcome(program, raised(0, "peer_lost"), died={1: how})


def test_ranks_of_one_host_began_as_their_clock_says(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)

    def began(second_host: str) -> list[float]:
        told = (
            replace(ended(0), began_s=7.25, host="one"),
            replace(ended(1), began_s=7.0, host=second_host),
        )
        return [rank.late_s for rank in observe(program, findings(*told), simulate(program)).ranks]

    assert began("one") == [0.25, 0.0]
    assert began("other") == [BETWEEN_HOSTS_S, BETWEEN_HOSTS_S]


def test_ranks_of_several_hosts_are_named_with_their_hosts(tmp_path: Path) -> None:
    plan_ = planned(SLEEPS, tmp_path)
    here = [replace(ended(rank), host=f"node{rank // 2}") for rank in range(4)]
    trace = observe(plan_, findings(*here), simulate(plan_))
    words = "ranks 0, 1 on node0; ranks 2, 3 on node1"
    assert trace.environment["hosts"] == words
    assert trace.hosts == {0: "node0", 1: "node0", 2: "node1", 3: "node1"}
    alone = [replace(ended(rank), host="node0") for rank in range(4)]
    one = observe(plan_, findings(*alone), simulate(plan_))
    assert "hosts" not in one.environment
    assert not one.hosts


SLEEPS = "world_size: 4\nsteps: [{sleep: 0s}]\n"


def test_a_rank_that_told_nothing_is_blocked_where_it_was_last_seen(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)
    seen = Findings(told={0: ended(0)}, stuck={1: (0, ())}, unable={}, died={}, usable=False)
    trace = observe(program, seen, simulate(program))
    assert trace.ranks[1].ending == "blocked"
    assert trace.ranks[1].events[-1].index == 0


def test_a_rank_that_could_not_start_is_named(tmp_path: Path) -> None:
    program = planned(PAIR + "  - all_reduce: {tensor: x}\n", tmp_path)
    unable = Findings(
        told={}, stuck={}, unable={1: WorldFailed(rank=1, reason="no route")}, died={}, usable=False
    )
    with pytest.raises(LaunchError, match="no route"):
        observe(program, unable, simulate(program))


HANG = (
    PAIR
    + """\
  - {ranks: 0, recv: {tensor: x, src: 1}}
"""
)


def test_a_predicted_deadlock_is_watched_for(tmp_path: Path) -> None:
    program = planned(HANG, tmp_path)
    watch = watch_for(program, simulate(program), confirm="prediction")
    assert watch.stops[0].positions == {(0, ())}
    assert not watch.stops[0].may_end
    assert watch.stops[1].positions == frozenset()


STEP = "  - barrier: {}\n"


def test_a_run_is_bounded_by_the_option_or_by_what_it_states(tmp_path: Path) -> None:
    short = planned("timeout: 5s\n" + PAIR + STEP, tmp_path)
    long = planned("timeout: 500s\n" + PAIR + STEP, tmp_path)
    bounds = [
        watch_for(each, simulate(each), confirm="prediction", max_seconds=120).most_s
        for each in (short, long)
    ]
    assert bounds == [120, 1500]
    assert watch_for(short, simulate(short), confirm="prediction").most_s is None


RING_OF_ISENDS = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {isend: {tensor: x, dst: "1 - rank"}, as: out}
  - recv: {tensor: y, src: "1 - rank"}
  - wait: out
"""


def test_a_hang_that_only_a_backend_has_is_watched_for_there(tmp_path: Path) -> None:
    program = planned(RING_OF_ISENDS, tmp_path)
    predicted = simulate(program)
    assert predicted.outcome == "completes"
    general = watch_for(program, predicted, confirm="prediction", backend="gloo")
    assert not general.stops
    assert general.anywhere_s is None
    watch = watch_for(program, predicted, confirm="prediction", backend="nccl")
    assert all(watch.stops[rank].positions for rank in (0, 1))
    assert watch.anywhere_s is not None


def test_nothing_is_watched_for_where_the_timeout_shall_confirm(tmp_path: Path) -> None:
    program = planned(HANG, tmp_path)
    assert not watch_for(program, simulate(program), confirm="timeout").stops


def test_a_step_that_expects_a_timeout_holds_nobody_for_good(tmp_path: Path) -> None:
    text = (
        PAIR
        + """\
  - {ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: timeout}}
  - {ranks: 1, recv: {tensor: x, src: 0, tag: 7}}
"""
    )
    program = planned(text, tmp_path)
    watch = watch_for(program, simulate(program), confirm="prediction")
    assert all((0, ()) not in stop.positions for stop in watch.stops.values())


def test_another_timeout_reaches_every_group_that_states_none(tmp_path: Path) -> None:
    text = "groups: {a: [0, 1], b: {ranks: [0, 1], timeout: 3s}}\n" + HANG
    program = replace_timeout(planned(text, tmp_path), 1.5)
    assert program.world.timeout_s == 1.5
    assert [program.names[name][0].timeout_s for name in ("world", "a", "b")] == [1.5, 1.5, 3]
    assert [creation.groups[0].timeout_s for creation in program.creations] == [1.5, 3]
    assert longest_timeout(program) == 3
