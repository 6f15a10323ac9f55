"""What a step's expectations look at, while it is undefined or running work still writes it.

To state what a tensor holds is to read it: the run reads it there, and what it finds in a tensor in
flight depends on timing. A key that is a view (`m[0]`) looks at that part; any other expression at
all of the tensors that it reads. Shapes and dtypes are always there to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.operations.entries import Undefined
from runner.reference import buffers
from runner.reference.values import beside, measured
from runner.scenario import Expression, ListForm, Objects, PerRank, Record, Typed

if TYPE_CHECKING:
    from runner.program import Call
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
            names |= flight.names & _read(wanted)
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
    if not names or flight.whole or not names <= key.roots or key.before:
        return names
    held = [state.process.scope[name] for name in names]
    return frozenset() if _beside(state, flight.memory, key, held) else names


def _left(state: RankState, seen: frozenset[str], key: Expression) -> Undefined | None:
    """Return what is undefined of what a key looks at."""
    process = state.process
    names = sorted(seen & process.undefined.keys())
    for name in names:
        left = process.undefined[name]
        held = [process.scope[each] for each in names]
        view = bool(left.memory) and seen <= key.roots and not key.before
        if not (view and _beside(state, left.memory, key, held)):
            return left
    return None


def _beside(state: RankState, memory: tuple[Any, ...], key: Expression, held: list[Any]) -> bool:
    value = state.process.evaluate(key)
    state.process.undefined_reads.clear()
    return beside(memory, value, held)


def _running(flight: Flight) -> Undefined:
    cause = f"the start of `{flight.work.call.label}`, which still runs"
    return Undefined(cause=cause, diagnosis="buffer_race")


def _read(form: Any) -> frozenset[str]:  # noqa: ANN401 -- any form
    """Return the names whose elements a wanted value is made of."""
    match form:
        case Expression():
            return form.reads
        case ListForm():
            parts = [_read(item) for item in form.items]
        case Record():
            parts = [_read(item) for item in form.fields.values()]
        case PerRank():
            parts = [_read(item) for _, item in form.branches] + [_read(form.otherwise)]
        case Typed():
            parts = [_read(form.value), _read(form.shape)]
        case Objects():
            parts = [_read(form.tree)]
        case dict():
            parts = [_read(item) for item in form.values()]
        case list() | tuple():
            parts = [_read(item) for item in form]
        case _:
            parts = []
    return frozenset().union(*parts)
