"""Where ranks are stuck, against `blocked:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judging import checked, codes, on_rank, ran
from msgspec.structs import replace

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import RankTrace

#: the first broadcast lacks rank 2, which need not stop anyone; the all_reduce lacks rank 3
OPEN_FIRST = """\
world_size: 4
tensors: {w: [10], g: "full(1, rank)"}
steps:
  - {ranks: "rank != 2", broadcast: {tensor: w, src: 0}}
  - {ranks: 2, barrier: {}}
  - {ranks: "rank != 3", all_reduce: {tensor: g}}
expect:
  outcome: deadlock
  diagnosis: [call_mismatch, missing_participant]
  blocked: {0: all_reduce, 1: all_reduce, 2: barrier}
"""


def stands_at_first(found: RankTrace) -> RankTrace:
    first = replace(found.events[0], state="blocked", end_s=None, writes={})
    return replace(found, ending="blocked", events=(first,))


def test_a_rank_may_stand_at_an_open_step_before_the_stated_one(tmp_path: Path) -> None:
    assert checked(OPEN_FIRST, tmp_path).status == "PASSED"
    assert ran(OPEN_FIRST, tmp_path).status == "PASSED"
    assert ran(OPEN_FIRST, tmp_path, on_rank(1, stands_at_first)).status == "PASSED"


def test_a_rank_may_not_stand_where_nothing_is_open(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {g: [1]}
steps:
  - all_reduce: {tensor: g}
  - {ranks: 0, all_reduce: {tensor: g}}
expect:
  outcome: deadlock
  diagnosis: missing_participant
  blocked: {0: stands}
""".replace("  - {ranks: 0, ", "  - {name: stands, ranks: 0, ")
    assert ran(text, tmp_path).status == "PASSED"
    assert "blocked_differs" in codes(ran(text, tmp_path, on_rank(0, stands_at_first)))


def test_who_gave_up_is_blocked_only_where_the_end_is_a_deadlock(tmp_path: Path) -> None:
    text = """\
world_size: 4
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 0}}
  - {ranks: 1, recv: {tensor: y, src: 3}}
  - {ranks: [0, 2], all_reduce: {tensor: y}}
expect:
  outcome: error
  diagnosis: [invalid_argument, missing_participant, unmatched_recv, call_mismatch]
  BLOCKED
"""
    shown = checked(text.replace("  BLOCKED\n", ""), tmp_path)
    assert shown.predicted is not None
    endings = {rank.rank: rank.ending for rank in shown.predicted.ranks}
    stuck = {rank: "recv" for rank, ending in endings.items() if ending == "blocked"}
    assert endings[2] == "raised"
    verdict = checked(text.replace("BLOCKED", f"blocked: {stuck}"), tmp_path)
    assert "blocked_differs" not in codes(verdict)
