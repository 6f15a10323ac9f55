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
from runner.reference.values import arrays_of, byte_span, overlap, span_of, undefined_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from runner.call import Call
    from runner.reference.simulation import Simulation
    from runner.reference.state import Flight, RankState


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


#: units of work of a race, which is told of
RACE_WORK = 5_000

#: units of work of a look at what one asynchronous work uses
LOOK_WORK = 50

RACED = Undefined(cause="a buffer race", diagnosis="buffer_race")


def check(simulation: Simulation, state: RankState, call: Call) -> bool:
    """Find arguments that are undefined, or in the hands of work that still runs.

    Returns whether the call races with such work: then what it carries is undefined.
    """
    operation = call.operation
    assert operation is not None  # noqa: S101 -- the caller looked
    raced = isinstance(operation, PointToPoint) and _with_itself(simulation, state, call)
    for memory, names, reads, writes in _uses(call):
        # what a local step reads, its expressions have noted
        if reads and not isinstance(operation, Local):
            for name in sorted(names & state.process.undefined.keys()):
                value = undefined_in(state.process, call, name)
                if value is not None and value.diagnosis != "buffer_race":
                    undefined_read(simulation, state, call, name, value)
        if state.flying:
            raced |= _collide(simulation, state, call, memory, writes=writes)
    if state.flying:
        for name in operation.introduces(call.step):
            memory = arrays_of(state.process.scope.get(name))
            raced |= _collide(simulation, state, call, memory, writes=True)
    return raced


def _uses(call: Call) -> Iterator[tuple[tuple[Any, ...], frozenset[str], bool, bool]]:
    """Yield what a call uses of held tensors: arrays, held names, whether it reads and writes them.

    The tensors of messages stand in the messages: a batch has several in one argument.
    """
    operation = call.operation
    assert operation is not None  # noqa: S101 -- the caller looked
    if isinstance(operation, PointToPoint):
        for message in operation.messages(call.entry):
            names = frozenset(call.read if message.sends else call.written)
            memory = arrays_of(message.payload if message.sends else message.buffer)
            yield memory, names, message.sends, not message.sends
        return
    for param in operation.params:
        names = call.roots.get(param.name, frozenset())
        if names:
            memory = arrays_of(call.entry.arguments.get(param.name))
            yield (
                memory,
                names,
                operation.reads(param, call.entry),
                operation.writes(param, call.entry),
            )


def _with_itself(simulation: Simulation, state: RankState, call: Call) -> bool:
    """Find messages of one call of which one is stored where another is sent, or stored."""
    assert isinstance(call.operation, PointToPoint)  # noqa: S101 -- asked by the caller
    messages = call.operation.messages(call.entry)
    if len(messages) == 1:
        return False
    parts = [
        (part, not message.sends)
        for message in messages
        for part in arrays_of(message.payload if message.sends else message.buffer)
        if isinstance(part, np.ndarray) and part.size
    ]
    clashing = _clashing(parts)
    if not clashing:
        return False
    roots = {name for names in call.roots.values() for name in names}
    held = {name: arrays_of(state.process.scope.get(name)) for name in roots}
    names = {name for name, arrays in held.items() if overlap(arrays, clashing)}
    state.raced |= names
    told = ", ".join(sorted(names)) or "a tensor"
    place = f" ({call.step.mark.short})" if call.step.mark else ""
    _found(simulation, state, call, f"in `{call.label}`{place} uses {told} twice at once", told)
    return True


def _clashing(parts: list[tuple[NDArray[Any], bool]]) -> tuple[NDArray[Any], ...]:
    """Return the arrays that are written and share an element with another; True is written."""
    ordered = sorted(((*byte_span(part), part, writes) for part, writes in parts), key=_low)
    found: list[NDArray[Any]] = []
    near: list[tuple[int, int, NDArray[Any], bool]] = []
    for entry in ordered:
        low, _, part, writes = entry
        near = [each for each in near if each[1] > low]
        for _, _, other, written in near:
            if (writes or written) and overlap((part,), (other,)):
                found.append(part if writes else other)
        near.append(entry)
    return tuple(found)


def _low(entry: tuple[int, int, NDArray[Any], bool]) -> int:
    return entry[0]


def _collide(
    simulation: Simulation, state: RankState, call: Call, memory: tuple[Any, ...], *, writes: bool
) -> bool:
    raced = False
    state.ledger.account.spend(LOOK_WORK * len(state.flying), call.step.mark)
    span = span_of(memory)
    for flight in state.flying:
        if span and flight.span and (span[1] <= flight.span[0] or flight.span[1] <= span[0]):
            continue
        if (writes or flight.writes) and overlap(flight.memory, memory):
            raced = True
            state.ledger.account.spend(RACE_WORK, call.step.mark)
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
    told = f"in `{call.label}`{place} {does} {names} while `{busy.label}`{other} still uses it"
    _found(simulation, state, call, told, names)


def _found(simulation: Simulation, state: RankState, call: Call, told: str, names: str) -> None:
    simulation.findings.append(
        Finding(
            name="buffer_race",
            prose=f"rank {state.rank} {told}",
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"race:{call.step.index}:{names}",
        )
    )
