"""The tensors in the hands of asynchronous work: handed over when it starts, back when waited for.

Meanwhile an expression that reads what the work writes notes that it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import PointToPoint
from runner.operations.entries import Undefined
from runner.reference.buffers import RACED
from runner.reference.state import Flight
from runner.reference.values import arrays_of, overlap, span_of

if TYPE_CHECKING:
    from runner.call import Call
    from runner.reference.posts import Work
    from runner.reference.state import RankState


#: units of work of a look at one flight
FLIGHT_WORK = 500


def take(state: RankState, call: Call, work: Work) -> None:
    """Hand the tensors of an asynchronous call over to its work."""
    operation = call.operation
    assert operation is not None  # noqa: S101 -- only operations start work
    for message in operation.messages(call.entry) if isinstance(operation, PointToPoint) else ():
        given = message.payload if message.sends else message.buffer
        _fly(state, call, work, given, writes=not message.sends)
    if isinstance(operation, PointToPoint):
        return
    for param in operation.params:
        if call.roots.get(param.name):
            given = call.entry.arguments.get(param.name)
            _fly(state, call, work, given, writes=operation.writes(param, call.entry))


def _fly(state: RankState, call: Call, work: Work, given: Any, *, writes: bool) -> None:  # noqa: ANN401
    memory = arrays_of(given)
    held = {
        name: arrays_of(state.process.scope.get(name))
        for names in call.roots.values()
        for name in names
    }
    names = frozenset(name for name, arrays in held.items() if overlap(arrays, memory))
    whole = all(_size(held[name]) <= _size(memory) for name in names)
    flight = Flight(
        work=work, memory=memory, names=names, writes=writes, whole=whole, span=span_of(memory)
    )
    state.flying.append(flight)
    if writes and whole:
        for name in names:
            state.process.undefined[name] = running(flight)
    elif writes:
        busy = state.process.busy
        found = running(flight)
        state.process.busy = {**busy, **{name: (*busy.get(name, ()), found) for name in names}}


def running(flight: Flight) -> Undefined:
    """Return what a look at a tensor in flight finds."""
    cause = f"`{flight.work.call.label}` is still running"
    parts = tuple(part for part in flight.memory if isinstance(part, np.ndarray))
    return Undefined(cause=cause, diagnosis="buffer_race", memory=() if flight.whole else parts)


def _note_busy(state: RankState) -> None:
    """Let the rank's expressions know of which names running work writes a part."""
    state.ledger.account.spend(FLIGHT_WORK * len(state.flying))
    busy: dict[str, list[Undefined]] = {}
    for flight in state.flying:
        for name in flight.names if flight.writes and not flight.whole else ():
            busy.setdefault(name, []).append(running(flight))
    state.process.busy = {name: tuple(parts) for name, parts in busy.items()}


def _size(memory: tuple[Any, ...]) -> int:
    return sum(each.size if isinstance(each, np.ndarray) else 1 for each in memory)


def give_back(state: RankState, work: Work) -> None:
    """Take the tensors of a work that was waited for back."""
    for flight in [flight for flight in state.flying if flight.work is work]:
        state.flying.remove(flight)
        if flight.writes and flight.whole:
            for name in flight.names:
                state.process.undefined.pop(name, None)
        elif flight.writes:
            _note_busy(state)


def spoil_raced(state: RankState) -> None:
    """Leave undefined, on this rank, what two of its operations had at once."""
    flying = {name for flight in state.flying for name in flight.names}
    for name in state.raced - flying:
        state.process.undefined[name] = RACED
