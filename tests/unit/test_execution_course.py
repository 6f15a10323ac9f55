"""What the supervisor makes of mail: moves, signs of life, and their absence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from torch_scenarios.execution.protocol import (
    PredictedStop,
    RankAlive,
    RankMoved,
    RankStuck,
    Supervision,
    WorldReady,
)
from torch_scenarios.execution.supervisor import SILENT_S, RunState

if TYPE_CHECKING:
    import pytest

STOPS = {0: PredictedStop(ending="blocked", positions=frozenset({(3, ())}), may_end=False)}
WATCH = Supervision(world_size=1, patience_s=1.0, stops=STOPS)


def test_a_rank_is_at_its_stop_where_it_was_predicted_to_stand() -> None:
    run_state = RunState()
    run_state.note(RankStuck(rank=0, position=(3, ())))
    assert run_state.is_at_stop(0, WATCH)
    run_state.note(RankMoved(rank=0))
    assert not run_state.is_at_stop(0, WATCH)


def test_a_sign_of_life_is_no_move() -> None:
    run_state = RunState()
    run_state.note(WorldReady(rank=0))
    moved_s = run_state.moved_s
    run_state.note(RankAlive(rank=0))
    assert run_state.moved_s == moved_s
    assert run_state.alive_s[0] >= moved_s


def test_a_rank_on_a_device_that_shows_no_life_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    run_state = RunState()
    run_state.note(WorldReady(rank=0))
    assert run_state.silent == set()
    later_s = time.monotonic() + SILENT_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert run_state.silent == {0}
    assert run_state.is_at_stop(0, WATCH)


def test_a_rank_on_a_cpu_is_asked_for_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    run_state = RunState()
    run_state.note(RankMoved(rank=0))
    later_s = time.monotonic() + SILENT_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert run_state.silent == set()
