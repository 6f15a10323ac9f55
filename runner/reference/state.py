"""Where one simulated rank is, and under which reading of the semantics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.reference.values import snapshot
from runner.trace import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.program import Call, Process
    from runner.reference.matching import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How much a correct implementation may let pass.

    `buffered`: a send does not wait for its receiver. `strict`: a rank leaves a collective only
    once every member has entered, even those that it needs nothing from.
    """

    buffered: bool = False
    strict: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class RankState:
    """One rank of a simulation; `clock_s` is virtual time since the scenario began.

    `state` is `ready`, `blocked`, `finished`, `raised` or `died`. `writing` and `reading` map a
    tensor's name to the work that still uses it.
    """

    rank: int
    process: Process
    walker: Iterator[Call]
    clock_s: float = 0.0
    events: list[Event] = field(default_factory=list)
    initial: dict[str, Any] = field(default_factory=dict)
    state: str = "ready"
    died: str | None = None
    call: Call | None = None
    waiting: tuple[Work, ...] = ()
    handles: dict[str, Work] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    raced: set[str] = field(default_factory=set)
    writing: dict[str, Work] = field(default_factory=dict)
    reading: dict[str, Work] = field(default_factory=dict)

    def add_event(
        self,
        call: Call,
        start_s: float,
        *,
        written: tuple[str, ...] = (),
        **fields: Any,  # noqa: ANN401 -- the fields of an Event
    ) -> None:
        """Note that the rank took a step, with a copy of what it may have stored."""
        self.events.append(
            Event(
                index=call.step.index,
                label=call.label,
                iteration=call.iteration,
                start_s=start_s,
                writes={name: snapshot(self.process, name) for name in written},
                **fields,
            )
        )
