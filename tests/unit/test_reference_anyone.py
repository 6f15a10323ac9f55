"""A receive from anyone beside one that names the sender: torch promises no order between them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from judging import checked, codes, on_rank, ran
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.limits import DEFAULT
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference.snapshots import count_key_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.trace import Event, Trace
    from torch_scenarios.verdict import Verdict

BOTH = """\
world_size: 2
tensors: {a: [-1], b: [-1], x: [7], z: [8]}
steps:
  - {ranks: 0, FIRST, as: h}
  - {ranks: 0, SECOND, as: k}
  - {ranks: 1, isend: {tensor: x, dst: 0}, as: s}
  - {ranks: 1, isend: {tensor: z, dst: 0}, as: t}
  - {ranks: 0, wait: [h, k]}
  - {ranks: 1, wait: [s, t]}
"""
ANYONE, NAMED = "irecv: {tensor: a}", "irecv: {tensor: b, src: 1}"


def judged(folder: Path, first: str, second: str, *, tail: str = "") -> Verdict:
    return checked(BOTH.replace("FIRST", first).replace("SECOND", second) + tail, folder)


def names(verdict: Verdict) -> set[str]:
    assert verdict.predicted is not None
    return {diagnosis.name for diagnosis in verdict.predicted.diagnoses}


def test_a_named_receive_may_overtake_one_from_anyone(tmp_path: Path) -> None:
    assert "message_race" in names(judged(tmp_path, ANYONE, NAMED))


def test_one_that_was_posted_before_it_takes_its_message(tmp_path: Path) -> None:
    verdict = judged(tmp_path, NAMED, ANYONE, tail="expect: {a: {0: [8]}, b: {0: [7]}}\n")
    assert names(verdict) == set()
    assert verdict.status == "PASSED"


@pytest.mark.parametrize("other", ["src: 1, tag: 3", "src: 1"])
def test_what_comes_to_the_same_is_no_race(tmp_path: Path, other: str) -> None:
    second = NAMED.replace("src: 1", other)
    text = BOTH.replace("FIRST", ANYONE).replace("SECOND", second).replace("z: [8]", "z: [7]")
    if "tag" in other:
        text = text.replace("tensor: z, dst: 0", "tensor: z, dst: 0, tag: 3")
    assert names(checked(text, tmp_path)) == set()


# ---------------------------------------------------------------------------- what ends alike

GATHERED = """\
world_size: WORLD
tensors: {x: "VALUE", got: [0.0], total: [0.0]}
steps:
  - {ranks: "rank > 0", send: {tensor: x, dst: 0}}
  - for: {k: "range(COUNT)"}
    ranks: 0
    steps:
      - {ranks: 0, recv: {tensor: got}BESIDE}
      - {ranks: 0, compute: {total: "FOLD"}}
"""


def gathered(
    folder: Path,
    *,
    world: int = 4,
    value: str = "full(1, 0.1 * rank)",
    count: str = "world_size - 1",
    fold: str = "total + got",
    beside: str = "",
    tail: str = "",
) -> Verdict:
    text = GATHERED.replace("WORLD", str(world)).replace("VALUE", value).replace("COUNT", count)
    return checked(text.replace("FOLD", fold).replace("BESIDE", beside) + tail, folder)


def test_a_server_that_sums_what_comes_is_no_race(tmp_path: Path) -> None:
    verdict = gathered(tmp_path, tail="expect: {total: {0: [0.6], else: [0]}}\n")
    assert (verdict.status, names(verdict)) == ("PASSED", set())


def test_an_order_of_additions_is_within_the_tolerance(tmp_path: Path) -> None:
    verdict = gathered(tmp_path, value="full(1, 1 / (rank + 2))")
    assert (verdict.status, names(verdict)) == ("PASSED", set())


def test_what_the_last_message_left_is_no_race_unless_it_is_stated(tmp_path: Path) -> None:
    assert names(gathered(tmp_path)) == set()
    stated = gathered(tmp_path, tail="expect: {got: {0: [0.1], else: [0]}}\n")
    assert names(stated) == {"message_race"}
    (finding,) = stated.findings
    assert finding.kind == "message_race"
    assert finding.notes[-1].words.startswith("the value of `got` that is expected here may")


def test_a_copy_of_it_is_a_race(tmp_path: Path) -> None:
    assert names(gathered(tmp_path, fold="got + 0")) == {"message_race"}


def test_who_is_left_behind_is_a_race(tmp_path: Path) -> None:
    left = gathered(tmp_path, count="world_size - 2", value="[7]")
    assert "message_race" in names(left)


# ---------------------------------------------------------------------------- what is stated


def test_a_value_that_one_order_gives_does_not_hold(tmp_path: Path) -> None:
    verdict = gathered(
        tmp_path,
        world=3,
        fold="total * 2 + got",
        value="full(1, rank)",
        tail="expect: {total: {0: [4], else: [0]}, diagnosis: message_race}\n",
    )
    (finding,) = verdict.findings
    assert (verdict.status, finding.code, finding.ranks) == ("FAILED", "holds_in_some_orders", (0,))
    assert finding.because == ("rank 0 takes from rank 2, then rank 1",)


def test_a_value_that_no_order_gives_differs(tmp_path: Path) -> None:
    verdict = gathered(
        tmp_path,
        world=3,
        fold="total * 2 + got",
        value="full(1, rank)",
        tail="expect: {total: {0: [77], else: [0]}, diagnosis: message_race}\n",
    )
    assert (verdict.status, codes(verdict)) == ("FAILED", ["value_differs"])


def test_what_every_order_gives_may_be_stated_of_a_race(tmp_path: Path) -> None:
    verdict = gathered(
        tmp_path,
        world=3,
        fold="total * 2 + got",
        value="full(1, rank)",
        tail='expect: {"total[0] > 3.5": {0: true, else: false}, diagnosis: message_race}\n',
    )
    assert (verdict.status, codes(verdict)) == ("PASSED", [])


@pytest.mark.parametrize(
    ("wanted", "code"), [("[1]", "holds_in_some_orders"), ("[77]", "value_differs")]
)
def test_a_step_is_held_to_every_order_without_a_race(
    tmp_path: Path, wanted: str, code: str
) -> None:
    beside = f", expect: {{got: {wanted}}}"
    verdict = gathered(tmp_path, value="full(1, rank)", count="3", beside=beside)
    assert (names(verdict), codes(verdict)) == (set(), [code])


def test_a_step_that_only_another_order_takes_is_held_to_what_it_states(tmp_path: Path) -> None:
    tail = '  - {ranks: "rank == 0 and got[0] == 1", expect: {total: [77]}}\n'
    verdict = gathered(tmp_path, world=3, value="full(1, rank)", tail=tail)
    assert codes(verdict) == ["value_differs"]


# ---------------------------------------------------------------------------- how many orders


def orders(verdict: Verdict) -> int:
    assert verdict.predicted is not None
    return len(verdict.predicted.orders) or 1


def test_equal_messages_to_one_receiver_are_one_choice(tmp_path: Path) -> None:
    tail = "  - barrier: {}\nexpect: {total: {0: [441], else: [0]}}\n"
    verdict = gathered(tmp_path, world=64, value="[7]", beside=", expect: {got: [7]}", tail=tail)
    assert (verdict.status, names(verdict), orders(verdict)) == ("PASSED", set(), 1)


def test_several_equal_messages_of_each_are_one_choice(tmp_path: Path) -> None:
    text = """\
world_size: 4
tensors: {x: [7], got: [0], total: [0]}
steps:
  - for: {k: "range(21)"}
    steps:
      - {ranks: "rank > 0", send: {tensor: x, dst: 0}}
  - for: {k: "range(63)"}
    ranks: 0
    steps:
      - {ranks: 0, recv: {tensor: got}}
      - {ranks: 0, compute: {total: "total + got"}}
expect: {total: {0: [441], else: [0]}}
"""
    verdict = checked(text, tmp_path)
    assert (verdict.status, names(verdict), orders(verdict)) == ("PASSED", set(), 1)


def test_orders_that_come_to_one_state_are_one_from_there(tmp_path: Path) -> None:
    """Six messages have 720 orders, but rank 0 is in one of 64 states."""
    verdict = gathered(tmp_path, world=7, value="full(1, rank)")
    assert (verdict.status, names(verdict)) == ("PASSED", set())
    assert orders(verdict) <= 6 * 2**5


def test_who_sent_first_is_no_part_of_a_state(tmp_path: Path) -> None:
    """Two messages of each of three senders: 26 states with 54 ways on, and each way is gone once.

    A sender that goes on posts its next message behind those of the others.
    """
    text = """\
world_size: 4
tensors: {x: "full(1, rank)", got: [0], total: [0]}
steps:
  - for: {k: "range(2)"}
    steps:
      - {ranks: "rank > 0", send: {tensor: x, dst: 0}}
  - for: {k: "range(6)"}
    ranks: 0
    steps:
      - {ranks: 0, recv: {tensor: got}}
      - {ranks: 0, compute: {total: "total + got"}}
expect: {total: {0: [12], else: [0]}}
"""
    verdict = checked(text, tmp_path)
    assert (verdict.status, names(verdict), orders(verdict)) == ("PASSED", set(), 1 + 54 - 26)


def test_a_race_is_a_race_where_the_bound_is_hit(tmp_path: Path) -> None:
    """Five messages have 120 orders, of which 50 are gone through."""
    text = GATHERED.replace("WORLD", "6").replace("VALUE", "full(1, rank)")
    path = tmp_path / "bounded.yaml"
    path.write_text(
        text.replace("COUNT", "5").replace("FOLD", "total * 2 + got").replace("BESIDE", "")
    )
    (scenario,) = torch_scenarios.load(path)
    verdict = analyse(scenario, replace(DEFAULT, max_schedules=50)).verdict
    assert (verdict.status, names(verdict)) == ("FAILED", {"message_race"})


# ---------------------------------------------------------------------------- what a run took


def run_of(folder: Path, *sources: int) -> Verdict:
    """Return the verdict on a run in which rank 0 took the messages of these ranks in turn."""
    text = GATHERED.replace("WORLD", "3").replace("VALUE", "full(1, rank)").replace("COUNT", "2")
    text = text.replace("FOLD", "total * 2 + got").replace("BESIDE", "")
    changes, total = [], 0.0
    for turn, source in enumerate(sources):
        total = total * 2 + source
        changes += [written(0, 2, turn, "got", source), written(0, 3, turn, "total", total)]
    return ran(text + "expect: {diagnosis: message_race}\n", folder, *changes)


def written(rank: int, index: int, turn: int, name: str, value: float) -> Callable[[Trace], Trace]:
    def change(event: Event) -> Event:
        if (event.index, event.iteration) != (index, (turn,)):
            return event
        return replace(event, writes={name: np.full(1, value, np.float32)})

    return on_rank(
        rank, lambda found: replace(found, events=tuple(change(each) for each in found.events))
    )


@pytest.mark.parametrize("sources", [(1, 2), (2, 1)])
def test_a_run_may_take_any_order(tmp_path: Path, sources: tuple[int, ...]) -> None:
    assert run_of(tmp_path, *sources).status == "PASSED"


def test_a_run_that_took_a_message_twice_took_no_order(tmp_path: Path) -> None:
    verdict = run_of(tmp_path, 1, 1)
    assert (verdict.status, codes(verdict)) == ("FAILED", ["no_such_order"])


def test_a_run_is_compared_with_the_order_that_it_took(tmp_path: Path) -> None:
    """Values that another order gives are wrong in this one."""
    text = GATHERED.replace("WORLD", "3").replace("VALUE", "full(1, rank)").replace("COUNT", "2")
    text = text.replace("FOLD", "total * 2 + got").replace("BESIDE", "")
    changes = [
        written(0, 2, 0, "got", 1),
        written(0, 3, 0, "total", 2),
        written(0, 2, 1, "got", 2),
        written(0, 3, 1, "total", 6),
    ]
    verdict = ran(text + "expect: {diagnosis: message_race}\n", tmp_path, *changes)
    assert (verdict.status, codes(verdict)) == ("FAILED", ["no_such_order"])


# ---------------------------------------------------------------------- a bound on orders


UNEXPLORED = """\
world_size: 3
tensors: {x: "full(1, rank)", y: [0], z: [0]}
steps:
  - {ranks: 0, recv: {tensor: y}}
  - {ranks: 0, recv: {tensor: z}}
  - {ranks: [1, 2], send: {tensor: x, dst: 0}}
  - {ranks: 0, compute: {y: "y * 2 + z"}}
expect: STATED
"""


@pytest.mark.parametrize(
    ("stated", "of_one_order", "of_all"),
    [
        ("{diagnosis: message_race}", "INCONCLUSIVE", "PASSED"),
        ("{diagnosis: circular_wait}", "INCONCLUSIVE", "FAILED"),
        ("{outcome: deadlock}", "INCONCLUSIVE", "FAILED"),
        ("{x: {0: [5]}}", "FAILED", "FAILED"),
        ("{raises: {0: timeout}}", "FAILED", "FAILED"),
    ],
)
def test_what_another_order_may_show_is_not_denied_before_it_is_gone_through(
    stated: str, of_one_order: str, of_all: str, tmp_path: Path
) -> None:
    path = tmp_path / "program.yaml"
    path.write_text(UNEXPLORED.replace("STATED", stated), encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    found = [
        analyse(scenario, limits).verdict.status
        for limits in (replace(DEFAULT, max_schedules=1), DEFAULT)
    ]
    assert found == [of_one_order, of_all]


def test_the_control_of_a_state_is_counted_in_bytes() -> None:
    control = tuple((rank, 0.5, ((rank, True), frozenset({"g"}))) for rank in range(100))

    def taken(value: object) -> int:
        inside = value if isinstance(value, (tuple, frozenset)) else ()
        return sys.getsizeof(value) + sum(map(taken, inside)) if inside else 0

    assert taken(control) <= 2 * count_key_bytes(control) <= 4 * taken(control)
