"""Who may touch a tensor when: undefined values, and tensors that running work still uses.

A tensor belongs to an asynchronous operation from its start to its wait: it may be read meanwhile
if the operation only reads it, and not touched at all if the operation writes it
(`torch.distributed.isend`: modifying the tensor before the request completes is undefined;
MPI 4.1, 3.7.2 says the same of every nonblocking buffer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import Local, PointToPoint
from runner.operations.entries import Undefined
from runner.reference.findings import Finding
from runner.reference.state import Flight
from runner.reference.values import arrays_of, overlap, undefined_in

if TYPE_CHECKING:
    from runner.program import Call
    from runner.reference.posts import Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


def note_reads(simulation: Simulation, state: RankState, call: Call | None) -> None:
    """Turn the undefined values that the rank's expressions looked at into findings."""
    reads = state.process.undefined_reads
    state.misread = reads[0][1] if reads else None
    for name, value in reads:
        undefined_read(simulation, state, call or state.call, name, value)
    reads.clear()


def undefined_read(
    simulation: Simulation, state: RankState, call: Call | None, name: str, value: Undefined
) -> None:
    """Note that a rank relies on an undefined value.

    A mismatch that spoiled the value is a finding of its own, so that its readers are none.
    """
    race = value.diagnosis == "buffer_race"
    if value.diagnosis is not None and not race:
        return
    index = call.step.index if call else -1
    place = f" ({call.step.mark.short})" if call and call.step.mark else ""
    label = call.label if call else "the end"
    simulation.findings.append(
        Finding(
            name="buffer_race" if race else "undefined_read",
            prose=f"rank {state.rank} in `{label}`{place} looks at {name}: {value.cause}",
            index=index,
            iteration=call.iteration if call else (),
            ranks=(state.rank,),
            kind=f"{'race' if race else 'undefined'}:{index}:{name}",
        )
    )


RACED = Undefined(cause="a buffer race", diagnosis="buffer_race")


def check(simulation: Simulation, state: RankState, call: Call) -> bool:
    """Find arguments that are undefined, or in the hands of work that still runs.

    Returns whether the call races with such work: then what it carries is undefined.
    """
    operation = call.operation
    assert operation is not None  # noqa: S101 -- the caller looked
    raced = False
    for param in operation.params:
        names = call.roots.get(param.name, frozenset())
        if not names:
            continue
        # what a local step reads, its expressions have noted
        if operation.reads(param, call.entry) and not isinstance(operation, Local):
            for name in sorted(names & state.process.undefined.keys()):
                value = undefined_in(state.process, call, name)
                if value is not None and value.diagnosis != "buffer_race":
                    undefined_read(simulation, state, call, name, value)
        if state.flying:
            memory = arrays_of(call.entry.arguments.get(param.name))
            writes = operation.writes(param, call.entry)
            raced |= _collide(simulation, state, call, memory, writes=writes)
    if state.flying:
        for name in operation.introduces(call.step):
            memory = arrays_of(state.process.scope.get(name))
            raced |= _collide(simulation, state, call, memory, writes=True)
    return raced


def _collide(
    simulation: Simulation, state: RankState, call: Call, memory: tuple[Any, ...], *, writes: bool
) -> bool:
    raced = False
    for flight in state.flying:
        if (writes or flight.writes) and overlap(flight.memory, memory):
            raced = True
            _race(simulation, state, call, flight)
    return raced


def _race(simulation: Simulation, state: RankState, call: Call, flight: Flight) -> None:
    race(simulation, state, call, flight, "touches")
    state.raced |= flight.names
    for post in flight.work.posts:
        post.tainted = post.tainted or RACED
        post.outcome = [(argument, RACED, None) for argument, _, _ in post.outcome]


def race(simulation: Simulation, state: RankState, call: Call, flight: Flight, does: str) -> None:
    """Note that a call comes near a tensor that is in flight; `does` is the verb."""
    busy = flight.work.call
    names = ", ".join(sorted(flight.names)) or "a tensor"
    place = f" ({call.step.mark.short})" if call.step.mark else ""
    other = f" ({busy.step.mark.short})" if busy.step.mark else ""
    simulation.findings.append(
        Finding(
            name="buffer_race",
            prose=(
                f"rank {state.rank} in `{call.label}`{place} {does} {names} while "
                f"`{busy.label}`{other} still uses it"
            ),
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"race:{call.step.index}:{names}",
        )
    )


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
    flight = Flight(work=work, memory=memory, names=names, writes=writes, whole=whole)
    state.flying.append(flight)
    if writes and whole:
        for name in names:
            state.process.undefined[name] = running(flight)
    elif writes:
        _note_busy(state)


def running(flight: Flight) -> Undefined:
    """Return what a look at a tensor in flight finds."""
    cause = f"`{flight.work.call.label}` is still running"
    parts = tuple(part for part in flight.memory if isinstance(part, np.ndarray))
    return Undefined(cause=cause, diagnosis="buffer_race", memory=() if flight.whole else parts)


def _note_busy(state: RankState) -> None:
    """Let the rank's expressions know of which names running work writes a part."""
    busy: dict[str, tuple[Undefined, ...]] = {}
    for flight in state.flying:
        for name in flight.names if flight.writes and not flight.whole else ():
            busy[name] = (*busy.get(name, ()), running(flight))
    state.process.busy = busy


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
