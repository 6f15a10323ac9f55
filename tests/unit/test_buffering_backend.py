"""Runs on a backend of which nothing is known, and which buffers what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.needs import Lacks
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.reference.backends import buffer_sends

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import RankTrace, Trace
    from torch_scenarios.verdict import Verdict

RING = """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: (rank + 1) % 3}
truncated: all
expect: {outcome: deadlock, diagnosis: circular_wait}
"""
TAGS = """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 8}}
  - {ranks: 1, recv: {tensor: y, src: 0, tag: 1}}
  - {ranks: 2, recv: {tensor: y, src: 1, tag: 1}}
truncated: all
expect: {outcome: deadlock, diagnosis: tag_mismatch}
"""
BLOCKED = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 8}}
  - {ranks: 1, recv: {tensor: y, src: 0, tag: 1}}
expect: {outcome: deadlock, diagnosis: tag_mismatch, blocked: {0: send to 1, 1: recv from 0}}
"""
REDUCED = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x}}
expect: {outcome: deadlock, diagnosis: missing_participant}
"""


class Mine:
    """Runs as a backend does that buffers, or as one whose calls all end."""

    lacks = Lacks()

    def __init__(self, *, completes: bool = False) -> None:
        """Buffer what is sent; with `completes` pass every call."""
        self.completes = completes

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return what happens there."""
        found = buffer_sends(plan, predicted, DEFAULT)
        ranks = tuple(self._observe(rank) for rank in found.ranks)
        ended = all(rank.ending == "finished" for rank in ranks)
        outcome = "completes" if ended else "deadlock"
        return replace(found, backend="mine", outcome=outcome, ranks=ranks)

    def _observe(self, rank: RankTrace) -> RankTrace:
        """Return a rank as it is seen: blocked, or done."""
        passes = self.completes or rank.ending == "finished"
        state = "done" if passes else "blocked"
        end_s = 1.0 if passes else None
        last = [replace(each, state=state, end_s=end_s) for each in rank.events[-1:]]
        events = [*rank.events[:-1], *last]
        return replace(rank, ending="finished" if passes else "blocked", events=events)


def judge_run(folder: Path, text: str, backend: Mine) -> Verdict:
    path = folder / "it.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return execute(analyse(scenario), backend, "mine").verdict


def test_the_backend_does_not_deviate_whose_buffers_take_what_is_sent(tmp_path: Path) -> None:
    verdict = judge_run(tmp_path, RING, Mine())
    assert [(each.code, each.witness) for each in verdict.findings] == [
        ("outcome_differs", "expectation")
    ]
    assert "a backend may buffer what is sent" in verdict.findings[0].prose


def test_a_hang_that_buffers_do_not_end_passes_with_a_note(tmp_path: Path) -> None:
    verdict = judge_run(tmp_path, TAGS, Mine())
    assert (verdict.status, verdict.findings) == ("PASSED", ())
    assert any("a backend may buffer what is sent" in note for note in verdict.notes)


def test_where_a_rank_is_blocked_is_left_open_too(tmp_path: Path) -> None:
    verdict = judge_run(tmp_path, BLOCKED, Mine())
    assert [(each.code, each.witness) for each in verdict.findings] == [
        ("blocked_differs", "expectation")
    ]


@pytest.mark.parametrize("text", [BLOCKED, REDUCED])
def test_a_backend_that_lets_more_pass_than_buffers_do_deviates(tmp_path: Path, text: str) -> None:
    verdict = judge_run(tmp_path, text, Mine(completes=True))
    assert verdict.status == "FAILED"
    assert {each.witness for each in verdict.findings} == {"backend"}
