"""Where a call is made, also from a thread that has no line of Python."""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.record.evidence.frame import frame_of, is_asking

if TYPE_CHECKING:
    from recordings import Recording


def test_a_thread_with_too_few_frames_gives_its_outermost() -> None:
    found: list[Any] = []
    done = threading.Event()

    def look() -> None:
        found.extend(frame_of(calls).f_code.co_name for calls in (0, 1, 7))
        done.set()

    _thread.start_new_thread(look, ())
    assert done.wait(30)
    assert found == ["<genexpr>", "look", "look"]


def test_frames_are_counted_from_the_caller() -> None:
    def inner() -> Any:
        return frame_of(1)

    assert inner().f_code.co_name == "test_frames_are_counted_from_the_caller"


@pytest.mark.parametrize(
    ("test", "body", "is_told"),
    [
        ("not done.is_set()", "time.sleep(0.1)", True),
        ("not box", "time.sleep(0.1)", True),
        ("not all(each.done() for each in tasks)", "sleep(1)", True),
        ("time.monotonic() < end", "time.sleep(0.1)", False),
        ("not os.path.exists(path)", "time.sleep(0.1)", False),
        ("True", "time.sleep(0.1)", False),
        ("not done.is_set()", "step()", False),
    ],
)
def test_a_loop_that_only_sleeps_waits_for_a_thread(test: str, body: str, *, is_told: bool) -> None:
    assert is_asking(f"x = 1\nwhile {test}:\n    {body}\n", 3) is is_told
    assert not is_asking(f"x = 1\nwhile {test}:\n    {body}\n", 1)


@pytest.mark.torch
def test_a_call_of_such_a_thread_is_recorded_and_made(recording: Recording) -> None:
    ran = recording.of("thread_without_frames.py", "-n", "2")
    assert "broadcast" in (ran.folder / "scenario.yaml").read_text(encoding="utf-8")
    assert "raises" not in ran.output
