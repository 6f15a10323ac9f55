"""How one scenario is going, as far as its mail tells."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.execution.orders import (
    Alive,
    Begun,
    Free,
    Leaving,
    Message,
    Moved,
    Stuck,
    Told,
    Unable,
    Watch,
)

if TYPE_CHECKING:
    from runner.execution.orders import Position

#: seconds without a sign of life after which a rank on a device is taken to stand in a call that
#: does not let go of Python: it gives signs every second
SILENT_S = 6.0


@dataclass(slots=True)
class Course:
    """What is known of the ranks of one scenario while it runs."""

    begun: set[int] = field(default_factory=set)
    #: ranks on a device, by when they last showed that they are alive
    alive_s: dict[int, float] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)
    stuck: dict[int, Position] = field(default_factory=dict)
    unable: dict[int, Unable] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    free: set[int] = field(default_factory=set)
    died: dict[int, str] = field(default_factory=dict)
    #: ranks whose processes do not run any more, and what is wrong with each
    lost: dict[int, str] = field(default_factory=dict)
    #: a process ended before every rank was ready
    unbegun: bool = False
    moved_s: float = field(default_factory=time.monotonic)
    broken: bool = False
    hung: bool = False

    @property
    def silent(self) -> set[int]:
        """The ranks that have shown no life for long; on a CPU none is asked for it."""
        now_s = time.monotonic()
        found = {rank for rank, at_s in self.alive_s.items() if now_s - at_s > SILENT_S}
        return found - self.told.keys()


def at_its_stop(course: Course, rank: int, watch: Watch) -> bool:
    """Return whether a rank is where it was predicted to be in the end."""
    stop = watch.stops[rank]
    told = course.told.get(rank)
    if told is not None:
        return stop.may_end or told.trace.ending == stop.ending
    return course.stuck.get(rank) in stop.positions or rank in course.silent


def note(course: Course, message: Message) -> None:
    """Take in one message. A sign of life is no move."""
    now_s = time.monotonic()
    if isinstance(message, Begun):
        course.begun.add(message.rank)
        course.alive_s[message.rank] = now_s
    elif message.rank in course.alive_s:
        course.alive_s[message.rank] = now_s
    if not isinstance(message, Alive):
        course.moved_s = now_s
        _take(course, message)


def _take(course: Course, message: Message) -> None:
    match message:
        case Told():
            course.told[message.rank] = message
            course.stuck.pop(message.rank, None)
        case Stuck():
            course.stuck[message.rank] = message.position
        case Moved():
            course.stuck.pop(message.rank, None)
        case Unable():
            course.unable[message.rank] = message
        case Free():
            course.free.add(message.rank)
        case Leaving():
            course.leaving.add(message.rank)
        case _:
            pass  # that it came is all
