"""Ranks of a fake world that wait outside of any call are seen by their processes alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.record import fake
from torch_scenarios.record.evidence import standstill
from torch_scenarios.record.evidence.standstill import (
    OVER,
    RUNNING,
    STANDSTILL_S,
    WAITING,
    RankStates,
    Standstill,
    list_family,
    read_demand_s,
    read_transfer,
)

if TYPE_CHECKING:
    from pathlib import Path


class World:
    """Two ranks, of which one waits in its mailbox, and what the process of the other wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.wanted: float | None = 0.0
        self.transferred = 0
        self.board = RankStates(2)
        self.board.become(0, WAITING)
        self.board.become(1, RUNNING)
        self.standstill = Standstill(self.board, lambda: self.now)
        monkeypatch.setattr(standstill, "read_demand_s", lambda _: self.wanted)
        monkeypatch.setattr(standstill, "read_transfer", lambda _: self.transferred)

    def passes(self, seconds: float, *, wants: float = 0.0, transfers: int = 0) -> None:
        """Let time pass, in which the process of rank 1 wants a part of a processor.

        It reads and writes bytes, so many a second.
        """
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            if self.wanted is not None:
                self.wanted += 0.5 * wants
            self.transferred += transfers // 2
            self.standstill.look({10: 0, 11: 1})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.parametrize("wants", [0.0, 0.1])
def test_a_rank_that_wants_no_processor_stands_after_a_while(world: World, wants: float) -> None:
    world.passes(STANDSTILL_S - 1, wants=wants)
    assert world.standstill.rests(1)
    assert world.standstill.ranks() == []
    world.passes(3, wants=wants)
    assert world.standstill.ranks() == [1]
    assert not world.standstill.rests(0)


def test_a_rank_that_computes_or_cannot_be_known_never_stands(world: World) -> None:
    world.passes(3 * STANDSTILL_S, wants=0.5)
    assert not world.standstill.rests(1)
    world.wanted = None
    world.passes(3 * STANDSTILL_S)
    assert world.standstill.ranks() == []


def test_a_rank_that_downloads_does_not_stand_and_one_that_prints_a_line_does(
    world: World,
) -> None:
    world.passes(3 * STANDSTILL_S, transfers=200_000)
    assert world.standstill.ranks() == []
    world.passes(STANDSTILL_S + 3, transfers=80)
    assert world.standstill.ranks() == [1]


def test_what_a_process_and_its_children_write_is_counted(tmp_path: Path) -> None:
    before = read_transfer(os.getpid())
    (tmp_path / "weights").write_bytes(bytes(100_000))
    assert read_transfer(os.getpid()) - before >= 100_000


def test_what_another_rank_puts_is_a_movement(world: World) -> None:
    for _ in range(5):
        world.passes(STANDSTILL_S - 5)
        world.board.put(0)
    assert world.standstill.ranks() == []


def test_a_sleep_counts_to_its_end_and_a_loop_of_them_does_not(world: World) -> None:
    world.board.sleep_until(1, 100.0)
    world.passes(100)
    assert world.standstill.ranks() == []
    for _ in range(3):
        world.board.sleep_until(1, world.now + 100)
        world.passes(STANDSTILL_S / 2)
    assert world.standstill.ranks() == [1]


def test_a_process_wants_what_its_children_want() -> None:
    turns = "for each in range(3 * 10**6): pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {turns!r}]); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        most, until = 0.0, time.monotonic() + 60
        while most < 0.02 and time.monotonic() < until:
            with_child = sum(1 for _ in list_family(process.pid)) > 1
            most = max(most, (read_demand_s(process.pid) or 0.0) if with_child else 0.0)
        assert most >= 0.02
    finally:
        process.communicate(b"\n")
    assert read_demand_s(process.pid) is None
    assert read_demand_s(os.getpid()) is not None


def test_a_fake_rank_waits_for_nothing_of_ranks_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, slept = RankStates(2), list[float]()
    box = fake.FileMailbox(tmp_path, 0, [0, 1], board)
    monkeypatch.setattr("torch_scenarios.record.fake.time.sleep", slept.append)
    fake.FileMailbox(tmp_path, 1, [0, 1], board).put("0/1", b"one")
    board.become(1, OVER)
    assert box.take("0/1") == b"one"
    with pytest.raises(fake.NeverError):
        box.take("1/1")
    assert not slept
