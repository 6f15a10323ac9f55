"""Where one simulated rank is, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.reference.ledger import size_of
from runner.reference.values import snapshot
from runner.trace import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.call import Call
    from runner.operations.entries import Undefined
    from runner.program import Process
    from runner.reference.ledger import Ledger
    from runner.reference.posts import Work


#: a step and its iteration
Place = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flight:
    """A tensor argument in the hands of asynchronous work.

    `memory` are the arrays themselves, `names` the held names they belong to; `whole` tells that
    they are all of what those names hold.
    """

    work: Work
    memory: tuple[Any, ...]
    names: frozenset[str]
    writes: bool
    whole: bool
    #: the first and the last byte of the memory; None where it is not of arrays alone
    span: tuple[int, int] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class RankState:
    """One rank of a simulation; `clock_s` is virtual time since the scenario began.

    `state` is `ready`, `blocked`, `finished`, `raised` or `died`. `flying` is what asynchronous
    work still uses; `raced` the names of tensors that two operations had at once, and `racing`
    whether the rank's call touches such a tensor. `misread` is what the call's arguments were
    computed from although it is undefined.
    """

    rank: int
    process: Process
    walker: Iterator[Call]
    ledger: Ledger
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
    racing: bool = False
    misread: Undefined | None = None
    flying: list[Flight] = field(default_factory=list)

    def gave_up(self, work: Work) -> bool:
        """Whether nothing can wait for a work any more: its handle was dropped, as in a script.

        A step without `as` drops its work at once, a name given anew the one before, and the end of
        the program every one.
        """
        if work.waited or not work.call.asynchronous:
            return False
        kept = work.handle is not None and self.handles.get(work.handle) is work
        return not kept or self.state == "finished"

    def add_event(
        self,
        call: Call,
        start_s: float,
        *,
        written: tuple[str, ...] = (),
        raced: Mapping[str, Undefined] | None = None,
        **fields: Any,  # noqa: ANN401 -- the fields of an Event
    ) -> None:
        """Note that the rank took a step, with a copy of what it may have stored.

        `raced` is undefined because something is expected of it while it is in flight.
        """
        if written:
            scope = self.process.scope
            self.ledger.keep([scope.get(name) for name in written], call.step.mark)
        if fields.get("slack"):
            slack = sum(map(size_of, fields["slack"].values()))
            self.ledger.keep_bytes(slack, call.step.mark)
        kept = {name: snapshot(self.process, name) for name in written}
        kept.update(raced or {})
        self.events.append(
            Event(
                index=call.step.index,
                label=call.label,
                iteration=call.iteration,
                start_s=start_s,
                writes=kept,
                **fields,
            )
        )


def stands_at(state: RankState) -> Place | None:
    """Return where a rank is blocked, or None."""
    if state.state != "blocked" or state.call is None:
        return None
    return state.call.step.index, state.call.iteration
