"""Waiting for what cannot be waited for safely: look, sleep a little, look again, until a deadline.

A device that hangs never lets go of whoever synchronises with it. So nothing here does: an event is
asked whether it has happened, and whoever asks may leave at any time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

#: seconds of the first sleep between two looks, and of the longest
FIRST_S, LONGEST_S = 0.00002, 0.002

#: how a wait ends: it happened, the deadline passed, or `leave` said so
End: TypeAlias = Literal["happened", "late", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time, as far as it is needed; a test brings its own."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait(
    happened: Callable[[], bool],
    *,
    deadline_s: float,
    leave: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> End:
    """Wait until something has happened; `deadline_s` is a moment of the clock, not a duration.

    What has happened counts before the deadline and before `leave`. The sleeps grow from
    microseconds, so that what is nearly done is not waited for long.
    """
    clock = clock or Clock()
    pause_s = FIRST_S
    while not happened():
        if leave():
            return "left"
        if clock.now_s() >= deadline_s:
            return "late"
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_S)
    return "happened"


def seldom(
    ask: Callable[[], bool], every_s: float, clock: Clock | None = None
) -> Callable[[], bool]:
    """Return a question that is really asked once in `every_s` seconds, and answered no between."""
    clock = clock or Clock()
    asked_s = clock.now_s()

    def question() -> bool:
        nonlocal asked_s
        if clock.now_s() - asked_s < every_s:
            return False
        asked_s = clock.now_s()
        return ask()

    return question
