"""The progress board: what a rank has done, and where it is now.

The main thread writes it: one record as a step begins, three stores as it ends. The watching thread
and the last words of a dying process read it. Values are put into a trace's own terms when the
account is given, and what a device did is asked for then.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.trace import Event, RankTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution.orders import Position
    from runner.trace import Failure


@dataclass(slots=True)
class Site:
    """What a step is called on this rank, and whether it may block on others."""

    label: str
    communicates: bool


class Record:
    """One step as it was taken; `start_s` and `end_s` in seconds of the monotonic clock."""

    __slots__ = (
        "end_s",
        "event",
        "failure",
        "index",
        "iteration",
        "kept",
        "observed",
        "site",
        "start_s",
        "timeout_s",
        "written",
    )

    def __init__(self, site: Site, index: int, iteration: tuple[int, ...], start_s: float) -> None:
        """Begin a step; `iteration` holds the values of the loop variables around it."""
        self.site = site
        self.index = index
        self.iteration = iteration
        self.start_s = start_s
        self.end_s: float | None = None
        self.failure: Failure | None = None
        #: on a device that only enqueues: the event behind the step
        self.event: Any = None
        #: seconds that the backend itself would wait for the call, where it may return before
        self.timeout_s: float | None = None
        #: the names that the step may have stored into, and copies of what they held then
        self.written: tuple[str, ...] = ()
        self.kept: list[Any] = []
        self.observed: dict[str, Any] | None = None

    @property
    def position(self) -> Position:
        """Where in the program it stands."""
        return self.index, self.iteration


class Board:
    """The account of one rank in one scenario."""

    def __init__(
        self,
        rank: int,
        convert: Callable[[Any], Any],
        happened_s: Callable[[Any], float] | None = None,
    ) -> None:
        """Begin; `convert` makes a value of a trace from a copy.

        On a device that only enqueues, `happened_s` tells when an event happened, in seconds of the
        device's clock; None where a call that has returned is done.
        """
        self.rank = rank
        self.records: list[Record] = []
        self.initial: Mapping[str, Any] = {}
        #: the record of the communication call that the main thread is in
        self.inside: Record | None = None
        self.begin_s = time.monotonic()
        self.convert = convert
        self._happened_s = happened_s
        #: how many records the device has done, from the first on
        self._done = 0
        #: moves that the records do not show
        self._others = 0
        self._device = threading.Lock()
        #: what asking the device raised: its context is lost
        self.fault: Exception | None = None

    def begin(self, initial: Mapping[str, Any]) -> None:
        """Start the scenario's clock on this rank."""
        self.initial = initial
        self.begin_s = time.monotonic()

    def enter(self, site: Site, index: int, iteration: tuple[int, ...] = ()) -> Record:
        """Note that a step begins; returns its record."""
        record = Record(site, index, iteration, time.monotonic())
        self.records.append(record)
        if site.communicates:
            self.inside = record
        return record

    def leave(self, record: Record) -> None:
        """Note that a step ended, well or not."""
        record.end_s = time.monotonic()
        self.inside = None

    def forget(self, record: Record) -> None:
        """Take the last step out of the account: it was none of the program's."""
        self._others += 2
        self.records.remove(record)

    @property
    def moves(self) -> int:
        """Counts what happens, each entry and each return; unchanged means that nothing did."""
        records = self.records
        inside = bool(records) and records[-1].end_s is None
        return 2 * len(records) - inside + self._others

    # ------------------------------------------------------------------ a device

    def advance(self) -> Record | None:
        """Note what the device has done since; return the record that it is at, None at the end.

        Only asks, and never waits; called by the main thread and by the watching one. What the
        device does is a move. A record that the host has not left yet ends the look.
        """
        if self._happened_s is None:
            return None
        with self._device:
            before = self._done
            try:
                return self._look()
            except RuntimeError as error:
                self.fault = error
                return self.records[self._done]
            finally:
                self._others += self._done - before

    def _look(self) -> Record | None:
        """Find the first record that the device has not done: strides that grow, then halves.

        A device does in order what is enqueued on one stream. So a few questions tell what it has
        done of many steps, and each question takes time from the main thread.
        """
        records, end = self.records, len(self.records)
        if end and records[end - 1].event is None:
            end -= 1  # the host has not left it
        stride, undone = 1, end
        while self._done < undone:
            middle = min(self._done + stride, undone) - 1
            if undone < end:
                middle = (self._done + undone) // 2
            if records[middle].event.query():
                self._done = middle + 1
                stride *= 2
            else:
                undone = middle
        return records[undone] if undone < end else None

    def behind(self, record: Record, event: Any) -> None:  # noqa: ANN401 -- the device's own event
        """Let the last step be done with a later event: more was enqueued for it."""
        with self._device:
            record.event = event
            self._done = min(self._done, len(self.records) - 1)

    @property
    def standing(self) -> Record | None:
        """The communication call that holds the rank: on the device if there is one, else here."""
        at = self.advance()
        if at is None:
            return self.inside
        return at if at.site.communicates else None

    def fail(self, record: Record, failure: Failure) -> None:
        """Note that a call failed on the device after it had returned to the host."""
        record.failure = failure
        self._others += 1

    # ------------------------------------------------------------------ the account

    def account(self, ending: str, died: str | None = None) -> RankTrace:
        """Give the account so far. A step that has not ended is blocked, or running if local.

        What a device has not done yet is left out, from the step after the first such on.
        """
        convert, records, done = self.convert, tuple(self.records), self._done
        undone = done < len(records) and records[done].event is not None
        told = records[: done + 1] if undone else records
        return RankTrace(
            rank=self.rank,
            initial={name: convert(value) for name, value in self.initial.items()},
            events=tuple(
                self._event(record, undone=undone and place == done)
                for place, record in enumerate(told)
            ),
            ending=ending,
            died=died,
        )

    def _event(self, record: Record, *, undone: bool) -> Event:
        site, convert = record.site, self.convert
        if record.failure is not None:
            state = "raised"
        elif record.end_s is None or undone:
            state = "blocked" if site.communicates else "running"
        else:
            state = "done"
        written = {} if undone else dict(zip(record.written, record.kept, strict=False))
        observed = {} if undone or record.observed is None else record.observed
        return Event(
            index=record.index,
            label=site.label,
            iteration=record.iteration,
            state=state,
            start_s=record.start_s - self.begin_s,
            end_s=None if record.end_s is None else record.end_s - self.begin_s,
            complete_s=None if undone else self._complete_s(record),
            failure=record.failure,
            writes={name: convert(value) for name, value in written.items()},
            observed={name: convert(value) for name, value in observed.items()},
        )

    def _complete_s(self, record: Record) -> float | None:
        """Return when a device was done with a step; None without one, or where it was lost."""
        if self._happened_s is None or record.event is None:
            return None
        try:
            return self._happened_s(record.event)
        except RuntimeError:
            return None
