"""Waiting by looking: an event, a deadline, a word from outside; on a clock of the test's own."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_scenarios.worker.device import FIRST_S, LONGEST_S, Clock, seldom, wait


@dataclass
class FakeTime:
    """A clock that only sleeping moves."""

    now_s: float = 100.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        """Pass the time."""
        self.slept.append(seconds)
        self.now_s += seconds

    @property
    def clock(self) -> Clock:
        """What a wait is given."""
        return Clock(now_s=lambda: self.now_s, sleep=self.sleep)


def test_what_has_happened_is_not_slept_for() -> None:
    time = FakeTime()
    assert wait(lambda: True, deadline_s=0.0, clock=time.clock) == "happened"
    assert time.slept == []


def test_what_happens_later_is_seen_soon_after() -> None:
    time = FakeTime()
    end = wait(lambda: time.now_s >= 101.0, deadline_s=200.0, clock=time.clock)
    assert end == "happened"
    assert time.now_s <= 101.0 + LONGEST_S


def test_the_deadline_ends_what_never_happens() -> None:
    time = FakeTime()
    assert wait(lambda: False, deadline_s=103.0, clock=time.clock) == "late"
    assert 103.0 <= time.now_s <= 103.0 + LONGEST_S


def test_a_word_from_outside_ends_it_before_the_deadline() -> None:
    time = FakeTime()
    end = wait(lambda: False, deadline_s=1e9, leave=lambda: time.now_s > 101.0, clock=time.clock)
    assert end == "left"


def test_what_happened_counts_before_all_else() -> None:
    time = FakeTime()
    end = wait(lambda: True, deadline_s=0.0, leave=lambda: True, clock=time.clock)
    assert end == "happened"


def test_sleeps_grow_from_microseconds_to_a_bound() -> None:
    time = FakeTime()
    wait(lambda: len(time.slept) == 20, deadline_s=1e9, clock=time.clock)
    assert time.slept[0] == FIRST_S
    assert time.slept == sorted(time.slept)
    assert max(time.slept) == LONGEST_S


def test_a_costly_question_is_asked_seldom() -> None:
    time = FakeTime()
    asked: list[float] = []

    def ask() -> bool:
        asked.append(time.now_s)
        return True

    question = seldom(ask, 0.5, time.clock)
    answers = []
    for _ in range(5):
        answers.append(question())
        time.sleep(0.25)
    assert answers == [False, False, True, False, True]
    assert asked == [100.5, 101.0]
