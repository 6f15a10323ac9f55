"""What a backend makes of a program: each fact of NCCL's, and what it changes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.traits import NCCL, OTHER, TRAITS, Traits
from torch_scenarios.reference import backends
from torch_scenarios.reference.semantics import Semantics, find_semantics
from torch_scenarios.reference.vector import CohortRun, take_together

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

#: ranks 0 and 1 exchange a message in one group call: afterwards they are connected both ways
CONNECTED = """\
world_size: {ranks}
tensors:
  x: "full({size}, rank)"
  y: "full({size}, -1)"
steps:
  - ranks: [0, 1]
    batch_isend_irecv:
      p2p_op_list:
        - {{op: isend, tensor: x, peer: "1 - rank"}}
        - {{op: irecv, tensor: y, peer: "1 - rank"}}
    as: connected
  - ranks: [0, 1]
    wait: connected
"""

SEND_FIRST = """\
  - ranks: [0, 1]
    send: {tensor: x, dst: "1 - rank"}
  - ranks: [0, 1]
    recv: {tensor: y, src: "1 - rank"}
"""

START_FIRST = """\
  - ranks: [0, 1]
    isend: {tensor: x, dst: "1 - rank"}
    as: sent
  - ranks: [0, 1]
    recv: {tensor: y, src: "1 - rank"}
  - ranks: [0, 1]
    wait: sent
"""


def connected(steps: str, *, size: int = 4, ranks: int = 2) -> str:
    return CONNECTED.format(ranks=ranks, size=size) + steps


def predicted(text: str, folder: Path) -> Trace:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.simulate(torch_scenarios.plan(scenario))


def forecast(text: str, folder: Path) -> Trace:
    return predicted(text, folder).on("nccl")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no buffer of NCCL's ever hold more than 64 bytes, so that small tensors are large."""
    monkeypatch.setitem(TRAITS, "nccl", replace(NCCL, early_bytes=16, held_bytes=64))


def floats(size_bytes: int) -> int:
    return size_bytes // 4


# ---------------------------------------------------------------------------- sends


def test_a_small_send_leaves_before_its_receive_is_posted(tmp_path: Path) -> None:
    trace = predicted(connected(SEND_FIRST), tmp_path)
    assert trace.outcome == "deadlock"
    assert trace.on("nccl").outcome == "completes"
    assert trace.on("nccl").open == ()
    assert "leaves rank 0 early: sends of up to 16384 bytes do" in trace.on("nccl").because[0]
    assert [rank.events[-1].writes["y"].tolist() for rank in trace.on("nccl").ranks] == [
        [1, 1, 1, 1],
        [0, 0, 0, 0],
    ]


def test_the_largest_early_message_leaves_and_one_more_byte_may(tmp_path: Path) -> None:
    just = forecast(connected(SEND_FIRST, size=floats(NCCL.early_bytes)), tmp_path)
    above = forecast(connected(SEND_FIRST, size=floats(NCCL.early_bytes) + 1), tmp_path)
    assert (just.outcome, just.open) == ("completes", ())
    assert (above.outcome, above.open) == ("deadlock", ("completes",))


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(("size_bytes", "opened"), [(64, True), (68, False)])
def test_what_no_buffer_holds_waits_for_sure(
    tmp_path: Path, size_bytes: int, *, opened: bool
) -> None:
    large = forecast(connected(SEND_FIRST, size=floats(size_bytes)), tmp_path)
    beside = forecast(connected(START_FIRST, size=floats(size_bytes)), tmp_path)
    assert (beside.outcome, "completes" in beside.open) == ("deadlock", opened)
    assert (large.outcome, "completes" in large.open) == ("deadlock", True)


@pytest.mark.parametrize(("count", "outcome"), [(8, "completes"), (9, "deadlock")])
def test_so_many_small_messages_leave_early_and_not_more(
    tmp_path: Path, count: int, outcome: str
) -> None:
    steps = f"""\
  - for: {{i: "range({count})"}}
    steps:
      - ranks: 0
        send: {{tensor: x, dst: 1}}
  - barrier: {{}}
  - for: {{i: "range({count})"}}
    steps:
      - ranks: 1
        recv: {{tensor: y, src: 0}}
"""
    assert forecast(connected(steps), tmp_path).outcome == outcome


def test_a_send_that_nobody_receives_is_lost_without_a_word(tmp_path: Path) -> None:
    trace = predicted(connected("  - {ranks: 0, send: {tensor: x, dst: 1}}\n"), tmp_path)
    assert (trace.outcome, trace.on("nccl").outcome) == ("deadlock", "completes")
    assert {diagnosis.name for diagnosis in trace.on("nccl").diagnoses} >= {"unmatched_send"}


# ---------------------------------------------------------------------------- connections


def test_the_first_message_waits_on_the_host_whatever_its_size(tmp_path: Path) -> None:
    ring = """\
world_size: 3
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - isend: {tensor: x, dst: "(rank + 1) % 3"}
    as: sent
  - recv: {tensor: y, src: "(rank - 1) % 3"}
  - wait: sent
"""
    trace = predicted(ring, tmp_path)
    assert trace.outcome == "completes"
    assert (trace.on("nccl").outcome, trace.on("nccl").open) == ("deadlock", ())
    assert [rank.events[-1].index for rank in trace.on("nccl").ranks] == [0, 0, 0]
    assert "from rank 0 to rank 1 waits on the host" in trace.on("nccl").because[0]


def test_two_ranks_that_call_the_same_first_connect_to_nobody_knows_what(tmp_path: Path) -> None:
    ring = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {outcome: deadlock}
"""
    found = forecast(ring, tmp_path)
    assert (found.outcome, found.open) == ("deadlock", ("completes", "crash", "error"))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_exchange_that_both_begin_with_a_send_stands_beside_any_number_of_idle_ranks(
    tmp_path: Path, size: int
) -> None:
    exchange = f"""\
world_size: {size}
tensors: {{x: "full(1, rank)", y: [-1]}}
steps:
  - {{ranks: rank < 2, isend: {{tensor: x, dst: "1 - rank"}}, as: away}}
  - {{ranks: rank < 2, recv: {{tensor: y, src: "1 - rank"}}}}
  - {{ranks: rank < 2, wait: away}}
"""
    trace = predicted(exchange, tmp_path)
    assert trace.outcome == "completes"
    assert trace.on("nccl").outcome == "deadlock"
    assert "completes" not in trace.on("nccl").open


BATCH_MEETS_PLAIN = """\
world_size: {size}
tensors: {{x: "full(1, rank)", y: [-1]}}
steps:
  - ranks: 0
    batch_isend_irecv:
      p2p_op_list: [{{op: irecv, tensor: y, peer: 1}}, {{op: isend, tensor: x, peer: 1}}]
    as: both
  - {{ranks: 1, {first}}}
  - {{ranks: 1, {then}}}
  - {{ranks: 0, wait: both}}
"""


@pytest.mark.parametrize(("size", "known"), [(2, False), (3, True), (4, True)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_that_meets_single_calls_first_connects_to_none_of_them(
    tmp_path: Path, size: int, *, known: bool, turned: bool
) -> None:
    # a call lets its peers go once it has connected all that it needs: the batch waits for the
    # second call of a rank whose first one waits for the batch. Half a ring apart the two halves
    # of a connection are offered in one message, which the peer may take for another one
    calls = ["recv: {tensor: y, src: 0}", "send: {tensor: x, dst: 0}"]
    first, then = reversed(calls) if turned else calls
    trace = predicted(BATCH_MEETS_PLAIN.format(size=size, first=first, then=then), tmp_path)
    assert trace.outcome == "completes"
    found = trace.on("nccl")
    assert (found.outcome, "error" in found.open) == ("deadlock", not known)
    why = "take their offers to connect for answers" if not known else "waits on the host"
    assert why in found.because[0]


CONNECTS_THREE = """\
world_size: 3
tensors: {x: "full(1, rank)", y: [-1], z: [-1]}
steps:
  - ranks: [0, 1]
    batch_isend_irecv: {p2p_op_list: [{op: isend, tensor: x, peer: "rank + 1"}]}
    as: work
  - ranks: 2
    batch_isend_irecv:
      p2p_op_list: [{op: irecv, tensor: y, peer: 1}, {op: irecv, tensor: z, peer: 0}]
    as: work
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - wait: work
"""


def test_a_host_that_waits_in_one_connection_keeps_all_of_its_peers(tmp_path: Path) -> None:
    # as seen with NCCL 2.28.9: rank 1 does not come back from its batch, although rank 2 is there
    trace = predicted(CONNECTS_THREE, tmp_path).on("nccl")
    assert trace.outcome == "deadlock"
    assert [rank.events[-1].index for rank in trace.ranks] == [0, 0, 1]


def test_hosts_run_ahead_of_their_devices_to_the_connection(tmp_path: Path) -> None:
    ahead = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [-1], z: [1]}
steps:
  - ranks: 0
    isend: {tensor: x, dst: 1}
    as: sent
  - all_reduce: {tensor: z}
  - ranks: 1
    recv: {tensor: y, src: 0}
  - ranks: 0
    wait: sent
"""
    trace = predicted(ahead, tmp_path)
    assert trace.on("nccl") is trace


def test_an_all_to_all_connects_everyone(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(2, rank)", y: [-1, -1]}
steps:
  - all_to_all_single: {output: y, input: x}
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {outcome: deadlock}
"""
    assert forecast(text, tmp_path).outcome == "completes"


def test_a_gather_connects_only_towards_its_root(tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors:
  x: "full(1, rank)"
  y: [-1]
  all: {0: "[zeros(1) for i in range(3)]"}
steps:
  - gather: {tensor: x, gather_list: all, dst: 0}
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - barrier: {}
  - {ranks: 1, recv: {tensor: y, src: 0}}
expect: {outcome: deadlock}
"""
    assert forecast(text, tmp_path).outcome == "deadlock"
    towards = text.replace(
        "ranks: 0, send: {tensor: x, dst: 1}", "ranks: 1, send: {tensor: x, dst: 0}"
    )
    towards = towards.replace(
        "ranks: 1, recv: {tensor: y, src: 0}", "ranks: 0, recv: {tensor: y, src: 1}"
    )
    assert forecast(towards, tmp_path).outcome == "completes"


# ---------------------------------------------------------------------------- streams


@pytest.mark.usefixtures("narrow")
def test_a_receive_waits_behind_a_large_send_on_its_stream(tmp_path: Path) -> None:
    trace = predicted(connected(START_FIRST, size=17), tmp_path)
    found = trace.on("nccl")
    assert (trace.outcome, found.outcome, found.open) == ("completes", "deadlock", ())
    assert [rank.events[-1].label for rank in found.ranks] == ["recv from 1", "recv from 0"]
    assert "`recv from 1` (program.yaml:18) of rank 0 begins only once" in found.because[0]
    assert [(wait.waiter, wait.peer, wait.label) for wait in found.waits] == [
        (0, 1, "isend to 1"),
        (1, 0, "isend to 0"),
    ]
    assert [diagnosis.name for diagnosis in found.diagnoses] == ["circular_wait"]
    assert all(diagnosis.optional for diagnosis in found.diagnoses)


def test_a_small_send_lets_the_receive_behind_it_begin(tmp_path: Path) -> None:
    trace = predicted(connected(START_FIRST), tmp_path)
    assert trace.on("nccl") is trace


@pytest.mark.usefixtures("narrow")
def test_a_batch_is_one_call_on_its_stream(tmp_path: Path) -> None:
    trace = predicted(connected("", size=17), tmp_path)
    assert trace.on("nccl") is trace


@pytest.mark.usefixtures("narrow")
def test_a_collective_waits_behind_a_message_of_its_group(tmp_path: Path) -> None:
    steps = """\
  - {ranks: 0, isend: {tensor: x, dst: 1}, as: sent}
  - all_reduce: {tensor: z}
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - {ranks: 0, wait: sent}
"""
    text = connected(steps, size=17).replace("tensors:\n", "tensors:\n  z: [1]\n")
    assert forecast(text, tmp_path).outcome == "deadlock"
    beside = text.replace("tensor: z}", "tensor: z, group: other}").replace(
        "tensors:\n", "groups: {other: [0, 1]}\ntensors:\n"
    )
    found = forecast(beside, tmp_path)
    assert (found.outcome, found.open) == ("completes", ("deadlock",))


def test_calls_of_two_groups_in_crossed_order_may_wait_for_each_other(tmp_path: Path) -> None:
    text = """\
world_size: 2
groups: {a: [0, 1], b: [0, 1]}
tensors: {x: [1], y: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x, group: a, async_op: true}, as: first}
  - {ranks: 0, all_reduce: {tensor: y, group: b, async_op: true}, as: second}
  - {ranks: 1, all_reduce: {tensor: y, group: b, async_op: true}, as: second}
  - {ranks: 1, all_reduce: {tensor: x, group: a, async_op: true}, as: first}
  - wait: [first, second]
"""
    trace = predicted(text, tmp_path)
    found = trace.on("nccl")
    assert (trace.outcome, trace.open) == ("completes", ())
    assert (found.outcome, found.open) == ("completes", ("deadlock",))
    assert "in the order in which its host launched them" in found.because[0]
    assert all((4, ()) in rank.may_block for rank in found.ranks)


def test_a_group_of_another_backend_is_no_stream_of_this_one(tmp_path: Path) -> None:
    text = connected(SEND_FIRST).replace(
        "tensors:\n", "groups: {g: {ranks: [0, 1], backend: gloo}}\ntensors:\n"
    )
    text = text.replace('dst: "1 - rank"}', 'dst: "1 - rank", group: g}').replace(
        'src: "1 - rank"}', 'src: "1 - rank", group: g}'
    )
    trace = predicted(text, tmp_path)
    assert trace.on("nccl") is trace
    assert trace.outcome == "deadlock"


# ---------------------------------------------------------------------------- tags


def test_tags_are_ignored_so_that_messages_match_in_order(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {a: [1], b: [2], c: [0], d: [0]}
steps:
  - {ranks: 0, isend: {tensor: a, dst: 1, tag: 1}, as: first}
  - {ranks: 0, isend: {tensor: b, dst: 1, tag: 2}, as: second}
  - {ranks: 1, recv: {tensor: c, src: 0, tag: 2}}
  - {ranks: 1, recv: {tensor: d, src: 0, tag: 1}}
  - {ranks: 0, wait: [first, second]}
"""
    trace = predicted(text, tmp_path)
    mine, theirs = trace.ranks[1].events, trace.on("nccl").ranks[1].events
    assert [event.writes for event in mine] == [{"c": [2]}, {"d": [1]}]
    assert [event.writes for event in theirs] == [{"c": [1]}, {"d": [2]}]
    assert "tags are ignored" in trace.on("nccl").because[0]


# ---------------------------------------------------------------------------- what is not read


def test_a_receive_from_anyone_is_nothing_that_nccl_has(tmp_path: Path) -> None:
    text = connected(SEND_FIRST).replace('recv: {tensor: y, src: "1 - rank"}', "recv: {tensor: y}")
    trace = predicted(text, tmp_path)
    assert trace.on("nccl") is trace


@pytest.mark.parametrize("backend", ["gloo", "borrowed", None])
def test_a_backend_without_facts_makes_what_the_semantics_make(
    tmp_path: Path, backend: str | None
) -> None:
    trace = predicted(connected(SEND_FIRST), tmp_path)
    assert trace.on(backend) is trace


def test_a_forecast_is_made_when_it_is_asked_for_and_lasts(tmp_path: Path) -> None:
    trace = predicted(connected(SEND_FIRST), tmp_path)
    unasked = pickle.loads(pickle.dumps(trace))  # noqa: S301 -- our own
    assert dict(unasked.forecasts) == {}
    made = trace.on("nccl")
    assert trace.on("nccl") is made
    assert list(trace.forecasts) == ["nccl"]
    assert pickle.loads(pickle.dumps(trace)).on("nccl").outcome == "completes"  # noqa: S301 -- our own


def test_groups_that_steps_create_are_launched_in_order_as_well(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1], y: [1]}
steps:
  - new_group: {name: a, group_ranks: [0, 1]}
  - new_group: {name: b, group_ranks: [0, 1]}
  - {ranks: 0, all_reduce: {tensor: x, group: a, async_op: true}, as: first}
  - {ranks: 0, all_reduce: {tensor: y, group: b, async_op: true}, as: second}
  - {ranks: 1, all_reduce: {tensor: y, group: b, async_op: true}, as: second}
  - {ranks: 1, all_reduce: {tensor: x, group: a, async_op: true}, as: first}
  - wait: [first, second]
"""
    trace = predicted(text, tmp_path)
    assert (trace.on("nccl").outcome, trace.on("nccl").open) == ("completes", ("deadlock",))
    lines = text.splitlines(keepends=True)
    lines[7], lines[8] = lines[8], lines[7]
    straight = predicted("".join(lines), tmp_path)
    assert straight.on("nccl") is straight


# ---------------------------------------------------------------------------- new groups


NEW_GROUP = """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: RANKS, new_group: {name: g, group_ranks: MEMBERS, use_local_synchronization: LOCAL}}
  - {ranks: "RANKS", expect: {x: [1]}}
"""


def created(folder: Path, ranks: str, members: str, *, local: bool = False) -> Trace:
    text = NEW_GROUP.replace("LOCAL", str(local).lower()).replace("RANKS", ranks)
    return predicted(text.replace("MEMBERS", members), folder)


def endings(trace: Trace) -> list[str]:
    return [rank.ending for rank in trace.ranks]


def test_a_new_group_waits_for_every_rank_of_the_world(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 1]", "[0, 1]")
    assert trace.outcome == "completes"
    assert endings(trace.on("nccl")) == ["blocked", "blocked", "finished"]
    assert "every rank of the world" in trace.on("nccl").because[0]


def test_who_is_no_member_waits_for_every_rank_too(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 2]", "[0, 1]")
    assert endings(trace) == ["blocked", "finished", "finished"]
    assert endings(trace.on("nccl")) == ["blocked", "finished", "blocked"]


def test_a_group_that_all_create_is_the_same(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 1, 2]", "[0, 1]")
    assert trace.on("nccl") is trace


def test_a_group_that_only_its_members_create_stands(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 1, 2]", "[0, 1]", local=True)
    assert trace.outcome == "completes"
    assert endings(trace.on("nccl")) == ["blocked", "blocked", "finished"]


def test_local_creations_of_apart_groups_meet_in_one_call(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 1, 2]", '"[0, 1] if rank < 2 else [2]"', local=True)
    assert trace.on("nccl") is trace


def test_ranks_that_disagree_on_a_group_pass_each_by_itself(tmp_path: Path) -> None:
    trace = created(tmp_path, "[0, 1, 2]", "{1: [0, 1, 2], else: [0, 1]}")
    assert trace.outcome == "deadlock"
    assert trace.on("nccl").outcome == "completes"
    assert "split off" in trace.on("nccl").because[0]


def test_what_a_group_does_on_which_ranks_disagree_is_not_forecast(tmp_path: Path) -> None:
    text = NEW_GROUP.replace("LOCAL", "false").replace("RANKS", "[0, 1, 2]")
    text = text.replace("MEMBERS", "{1: [0, 1, 2], else: [0, 1]}")
    trace = predicted(text + "  - all_reduce: {tensor: x, group: g}\n", tmp_path)
    assert trace.on("nccl") is trace


def test_a_row_that_only_says_that_a_backend_buffers_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRAITS, "ucc", replace(OTHER, early_bytes=64, early_messages=1))
    outcomes = []
    for size in (4, 400):
        path = tmp_path / f"of_{size}.yaml"
        tensors = f'{{x: "full({size}, rank)", y: "full({size}, -1)"}}'
        path.write_text(f"world_size: 2\ntensors: {tensors}\nsteps:\n{SEND_FIRST}")
        (scenario,) = torch_scenarios.load(path)
        outcomes.append(torch_scenarios.simulate(torch_scenarios.plan(scenario)).on("ucc").outcome)
    assert outcomes == ["completes", "deadlock"]


class Joining(Traits, frozen=True, kw_only=True):
    """A new fact: whether a rank leaves a collective only once all members have entered."""

    joins: bool = False


#: rank 0 sends once it has left the broadcast, and rank 1 receives before it enters that
LEAVES_EARLY = """\
world_size: RANKS
tensors: {x: "full(2, rank)", y: [0, 0]}
steps:
  - {ranks: 0, broadcast: {tensor: x, src: 0}}
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - {ranks: rank > 0, broadcast: {tensor: x, src: 0}}
"""


@pytest.mark.parametrize("ranks", [2, 32])
def test_a_new_fact_of_a_backend_shows_before_it_is_known_where_it_may(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(backend: str, traits: Traits) -> Semantics:
        strict = isinstance(traits, Joining) and traits.joins
        return replace(find_semantics(backend, traits), strict=strict)

    monkeypatch.setattr(backends, "find_semantics", find)
    for joins, outcome in ((False, "completes"), (True, "deadlock")):
        monkeypatch.setitem(TRAITS, "ucc", Joining(joins=joins))
        trace = predicted(LEAVES_EARLY.replace("RANKS", str(ranks)), tmp_path)
        assert trace.on("ucc").outcome == outcome


def test_a_new_fact_may_touch_what_many_ranks_do_together(tmp_path: Path) -> None:
    path = tmp_path / "sum.yaml"
    path.write_text("world_size: 32\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n")
    (scenario,) = torch_scenarios.load(path)
    found = take_together(torch_scenarios.plan(scenario), DEFAULT)
    assert isinstance(found, CohortRun)
    assert found.is_untouched_by(Joining())
    assert not found.is_untouched_by(Joining(joins=True))
