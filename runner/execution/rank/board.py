"""The progress board: what a rank has done, and where it is now.

The main thread writes it, two stores a step; the watching thread and the last words of a dying
process read it. Nothing is converted while the program runs: tensors are snapshots of torch's own,
and become arrays when the account is given.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.trace import Event, Failure, RankTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.execution.orders import Position


@dataclass(slots=True)
class Record:
    """One step as it was taken; `start_s` and `end_s` in seconds of the monotonic clock."""

    position: Position
    label: str
    communicates: bool
    start_s: float
    end_s: float | None = None
    failure: Failure | None = None
    raised: bool = False
    #: on a device that only enqueues: the event behind the step, and when it happened
    event: Any = None
    complete_s: float | None = None
    #: seconds that the backend itself would wait for the call
    timeout_s: float | None = None
    writes: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)


class Board:
    """The account of one rank in one scenario."""

    def __init__(
        self,
        rank: int,
        convert: Callable[[Any], Any],
        happened_s: Callable[[Any], float] | None = None,
    ) -> None:
        """Begin; `convert` makes a value of a trace from a snapshot.

        On a device that only enqueues, `happened_s` tells when an event happened, in seconds of the
        device's clock; None where a call that has returned is done.
        """
        self.rank = rank
        self.records: list[Record] = []
        self.initial: Mapping[str, Any] = {}
        #: counts what happens; unchanged means that nothing did
        self.moves = 0
        #: the record of the communication call that the main thread is in
        self.inside: Record | None = None
        self.begin_s = time.monotonic()
        self._convert = convert
        self._happened_s = happened_s
        #: how many records the device has done, from the first on
        self._done = 0
        self._device = threading.Lock()
        #: what asking the device raised: its context is lost
        self.fault: Exception | None = None

    def begin(self, initial: Mapping[str, Any]) -> None:
        """Start the scenario's clock on this rank."""
        self.initial = initial
        self.begin_s = time.monotonic()

    def enter(self, record: Record) -> None:
        """Note that a step begins."""
        self.records.append(record)
        if record.communicates:
            self.inside = record
        self.moves += 1

    def leave(self, record: Record) -> None:
        """Note that a step ended, well or not."""
        record.end_s = time.monotonic()
        self.inside = None
        self.moves += 1

    # ------------------------------------------------------------------ a device

    def advance(self) -> Record | None:
        """Note what the device has done since; return the record that it is at, None at the end.

        Only asks, and never waits; called by the main thread and by the watching one. What the
        device does is a move. A record that the host has not left yet ends the look.
        """
        if self._happened_s is None:
            return None
        with self._device:
            while self._done < len(self.records):
                record = self.records[self._done]
                if record.event is None:
                    return None
                try:
                    if not record.event.query():
                        return record
                    record.complete_s = self._happened_s(record.event)
                except RuntimeError as error:
                    self.fault = error
                    return record
                self._done += 1
                self.moves += 1
        return None

    def behind(self, record: Record, event: Any) -> None:  # noqa: ANN401 -- the device's own event
        """Let the last step be done with a later event: more was enqueued for it."""
        with self._device:
            record.event, record.complete_s = event, None
            self._done = min(self._done, len(self.records) - 1)

    @property
    def standing(self) -> Record | None:
        """The communication call that holds the rank: on the device if there is one, else here."""
        at = self.advance()
        if at is None:
            return self.inside
        return at if at.communicates else None

    def fail(self, record: Record, failure: Failure) -> None:
        """Note that a call failed on the device after it had returned to the host."""
        record.failure = failure
        record.raised = True
        self.moves += 1

    # ------------------------------------------------------------------ the account

    def account(self, ending: str, died: str | None = None) -> RankTrace:
        """Give the account so far. A step that has not ended is blocked, or running if local.

        What a device has not done yet is left out, from the step after the first such on.
        """
        records = tuple(self.records)
        undone = [record.event is not None and record.complete_s is None for record in records]
        told = records[: undone.index(True) + 1] if any(undone) else records
        return RankTrace(
            rank=self.rank,
            initial={name: self._convert(value) for name, value in self.initial.items()},
            events=tuple(self._event(record) for record in told),
            ending=ending,
            died=died,
        )

    def _event(self, record: Record) -> Event:
        undone = record.event is not None and record.complete_s is None
        if record.raised:
            state = "raised"
        elif record.end_s is None or undone:
            state = "blocked" if record.communicates else "running"
        else:
            state = "done"
        convert = self._convert
        return Event(
            index=record.position[0],
            label=record.label,
            iteration=record.position[1],
            state=state,
            start_s=record.start_s - self.begin_s,
            end_s=None if record.end_s is None else record.end_s - self.begin_s,
            complete_s=record.complete_s,
            failure=record.failure,
            writes={} if undone else {k: convert(v) for k, v in record.writes.items()},
            observed={} if undone else {k: convert(v) for k, v in record.observed.items()},
        )
