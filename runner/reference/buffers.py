"""Who may touch a tensor when: undefined values, and tensors that running work still uses.

A tensor belongs to an asynchronous operation from its start to its wait: it may be read meanwhile
if the operation only reads it, and not touched at all if the operation writes it
(`torch.distributed.isend`: modifying the tensor before the request completes is undefined;
MPI 4.1, 3.7.2 says the same of every nonblocking buffer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.base import Undefined
from runner.reference.findings import Finding

if TYPE_CHECKING:
    from runner.program import Call
    from runner.reference.matching import Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


def note_reads(simulation: Simulation, state: RankState, call: Call | None) -> None:
    """Turn the undefined values that the rank's expressions looked at into findings."""
    reads = state.process.undefined_reads
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


def check(simulation: Simulation, state: RankState, call: Call) -> None:
    """Find arguments that are undefined, or in the hands of work that still runs."""
    operation = call.operation
    assert operation is not None  # noqa: S101 -- the caller looked
    written = {*call.written, *operation.introduces(call.step)}
    for param in operation.params:
        reads = operation.reads(param, call.entry)
        for name in sorted(call.roots.get(param.name, ())):
            value = state.process.undefined.get(name)
            if value is not None and reads and name not in state.writing:
                undefined_read(simulation, state, call, name, value)
            if name in state.writing:
                _race(simulation, state, call, name, state.writing[name])
    for name in sorted(written):
        busy = state.reading.get(name) or state.writing.get(name)
        if busy is not None:
            _race(simulation, state, call, name, busy)


def _race(simulation: Simulation, state: RankState, call: Call, name: str, busy: Work) -> None:
    place = f" ({call.step.mark.short})" if call.step.mark else ""
    other = f" ({busy.call.step.mark.short})" if busy.call.step.mark else ""
    simulation.findings.append(
        Finding(
            name="buffer_race",
            prose=(
                f"rank {state.rank} in `{call.label}`{place} touches {name} while "
                f"`{busy.call.label}`{other} still uses it"
            ),
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"race:{call.step.index}:{name}",
        )
    )
    state.raced.add(name)


def take(state: RankState, call: Call, work: Work) -> None:
    """Hand the tensors of an asynchronous call over to its work."""
    written = set(call.written)
    for name in sorted(frozenset().union(*call.roots.values())):
        if name in written:
            state.writing[name] = work
            state.process.undefined[name] = Undefined(
                cause=f"`{call.label}` is still running", diagnosis="buffer_race"
            )
        else:
            state.reading[name] = work


def give_back(state: RankState, work: Work) -> None:
    """Take the tensors of a work that was waited for back; what raced over is undefined."""
    for name in [name for name, busy in state.reading.items() if busy is work]:
        del state.reading[name]
    for name in [name for name, busy in state.writing.items() if busy is work]:
        del state.writing[name]
        state.process.undefined.pop(name, None)


def spoil_raced(state: RankState) -> None:
    """Leave undefined what two of the rank's operations had at once, on this rank."""
    for name in state.raced - state.writing.keys():
        state.process.undefined[name] = Undefined(cause="a buffer race", diagnosis="buffer_race")
