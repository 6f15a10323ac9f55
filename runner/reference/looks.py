"""What a step's expectations look at, while it is undefined or running work still writes it.

To state what a tensor holds is to read it: the run reads it there, and what it finds in a tensor in
flight depends on timing. A key looks at what its value depends on: `m[0]`, or `sum(m[0])`, at that
part of `m`. Shapes and dtypes are always there to be asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.forms import Expression, ListForm, Objects, PerRank, Record, Typed
from runner.operations.entries import Undefined
from runner.probing import depends
from runner.reference import buffers, flying
from runner.reference.values import measured

if TYPE_CHECKING:
    from runner.call import Call
    from runner.reference.simulation import Simulation
    from runner.reference.state import Flight, RankState
    from runner.scenario import ValueExpectation


def look(
    simulation: Simulation, state: RankState, call: Call, observed: dict[str, Any]
) -> dict[str, Undefined]:
    """Replace what the step's expectation keys must not be asked for in `observed`.

    A look at a tensor in flight is a race. Returns the names that are undefined because of it.
    """
    stated = call.step.expect.values if call.step.expect is not None else ()
    raced: dict[str, Undefined] = {}
    if not (state.flying or state.process.undefined):
        return raced
    for expectation in stated:
        wanted = _chosen(state, expectation)
        if wanted is None:
            continue
        seen = frozenset() if _measures(wanted) else expectation.key.reads
        key = expectation.key.text
        for flight in (flight for flight in state.flying if flight.writes):
            names = _touched(state, flight, seen, expectation.key)
            if names and key in observed:
                observed[key] = _running(flight)
            names |= flight.names & _read(state, flight, wanted)
            if names:
                buffers.race(simulation, state, call, flight, "expects a value of")
                scope = state.process.scope
                raced |= {name: measured(_running(flight), scope[name]) for name in names}
        if isinstance(observed.get(key), Undefined):
            continue
        if key in observed:
            left = _left(state, seen, expectation.key)
            observed[key] = observed[key] if left is None else left
    return raced


def _chosen(state: RankState, expectation: ValueExpectation) -> Any:  # noqa: ANN401 -- any form
    form: Any = expectation.wanted
    while isinstance(form, PerRank):
        form = state.process.choose(form)
    return form


def _measures(form: Any) -> bool:  # noqa: ANN401 -- any form
    """Whether only a shape or a dtype is wanted."""
    return isinstance(form, Typed) and form.value is None


def _touched(
    state: RankState, flight: Flight, seen: frozenset[str], key: Expression
) -> frozenset[str]:
    """Return the names of a flight that a key looks at; of `seen` it reads elements."""
    names = seen & flight.names
    if not names or flight.whole or key.before:
        return names
    return (
        names if depends(key, state.process.scope, flying.running(flight).memory) else frozenset()
    )


def _left(state: RankState, seen: frozenset[str], key: Expression) -> Undefined | None:
    """Return what is undefined of what a key looks at."""
    process = state.process
    for name in sorted(seen & process.undefined.keys()):
        left = process.undefined[name]
        part = bool(left.memory) and not key.before
        if not (part and not depends(key, process.scope, left.memory)):
            return left
    return None


def _running(flight: Flight) -> Undefined:
    cause = f"the start of `{flight.work.call.label}`, which still runs"
    return replace(flying.running(flight), cause=cause, memory=())


def _read(state: RankState, flight: Flight, form: Any) -> frozenset[str]:  # noqa: ANN401 -- any form
    """Return the names whose elements, among those in flight, a wanted value is made of."""
    match form:
        case Expression():
            return _touched(state, flight, form.reads, form)
        case ListForm():
            parts = [_read(state, flight, item) for item in form.items]
        case Record():
            parts = [_read(state, flight, item) for item in form.fields.values()]
        case PerRank():
            parts = [_read(state, flight, item) for _, item in form.branches] + [
                _read(state, flight, form.otherwise)
            ]
        case Typed():
            parts = [_read(state, flight, form.value), _read(state, flight, form.shape)]
        case Objects():
            parts = [_read(state, flight, form.tree)]
        case dict():
            parts = [_read(state, flight, item) for item in form.values()]
        case list() | tuple():
            parts = [_read(state, flight, item) for item in form]
        case _:
            parts = []
    return frozenset().union(*parts)
