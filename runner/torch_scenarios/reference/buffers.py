"""Who may touch a tensor when: memory in use by asynchronous work, and looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Clause
from torch_scenarios.expressions.evaluator import depends
from torch_scenarios.expressions.values import (
    Expression,
    ListForm,
    Objects,
    PerRank,
    Record,
    TypedValue,
    Undefined,
)
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import ValueExpectation
from torch_scenarios.operations.base import Local, PointToPoint
from torch_scenarios.reference.matching import (
    CollectivePost,
    HistoryMissingError,
    MessagePost,
    Work,
)
from torch_scenarios.reference.rules.waiting import clash
from torch_scenarios.reference.state import (
    InFlightAccess,
    RankState,
    arrays_of,
    byte_span,
    find_undefined,
    forget_undefined,
    leave_undefined,
    measure,
    overlap,
    span_of,
)
from torch_scenarios.reference.symptoms import Symptom

# -------------------------------------------------------------------------------------------------
# Who may touch a tensor when: undefined values, and tensors that running work still uses.
#
# A tensor belongs to an asynchronous operation from its start to its wait: it may be read
# meanwhile if the operation only reads it, and not touched at all if the operation writes it
# (`torch.distributed.isend`: modifying the tensor before the request completes is undefined; MPI
# 4.1, 3.7.2 says the same of every nonblocking buffer).


def note_reads(state: RankState, call: Call | None) -> None:
    """Turn the undefined values that the rank's expressions looked at into findings."""
    reads = state.process.undefined_reads
    if not reads:
        state.misread = None
        return
    state.misread = reads[0][1]
    for name, value in reads:
        note_undefined_read(state, call or state.call, name, value)
    reads.clear()


def note_undefined_read(state: RankState, call: Call | None, name: str, value: Undefined) -> None:
    """Note that a rank relies on an undefined value.

    A mismatch or race that spoiled the value is a finding; its readers are not. All
    that relies on what one step left undefined is one mistake.
    """
    race = value.diagnosis == "buffer_race"
    if (value.diagnosis is not None and not race) or value == RACED:
        return
    index = call.step.index if call else -1
    label = call.label if call else "the end"
    known = value.origin >= 0
    why = f"while {value.cause}" if race else f"which is undefined after {value.cause}"
    state.findings.append(
        Symptom(
            name="buffer_race" if race else "undefined_read",
            clauses=(
                Clause(
                    f"rank {state.rank} in `{label}`",
                    call.mark if call else None,
                    f" reads {name}, {why}",
                ),
            ),
            index=index,
            iteration=call.iteration if call else (),
            ranks=(state.rank,),
            kind=f"{'race' if race else 'undefined'}:{value.origin if known else index}",
        )
    )


#: units of work of a race that is reported
RACE_WORK = 5_000

#: units of work of a look at what one asynchronous work uses
LOOK_WORK = 50

RACED = Undefined(cause="a buffer race", diagnosis="buffer_race")


def check(state: RankState, call: Call) -> bool:
    """Find arguments that are undefined, or in the hands of work that still runs.

    Returns whether the call races with such work: then what it carries is undefined.
    """
    operation = call.operation
    assert operation is not None
    raced = isinstance(operation, PointToPoint) and _races_with_itself(state, call)
    if not state.open_accesses and not state.process.undefined:
        return raced
    for memory, names, reads, writes in _uses(call):
        # what a local step reads, its expressions have noted
        if reads and not isinstance(operation, Local):
            for name in sorted(names & state.process.undefined.keys()):
                value = find_undefined(state.process, call, name)
                if value is not None and value.diagnosis != "buffer_race":
                    note_undefined_read(state, call, name, value)
        if state.open_accesses:
            raced |= _collide(state, call, memory, writes=writes)
    if state.open_accesses:
        for name in operation.introduces(call.step.arguments):
            memory = arrays_of(state.process.scope.get(name))
            raced |= _collide(state, call, memory, writes=True)
    return raced


# Taint: an undefined value does not end a run, it goes through it.
#
#     rank 0   recv x from 1     raises `timeout`: what it was to store into x is undefined
#     rank 0   all_reduce x      reads it, which is a finding; its post is `tainted`
#     rank 2   all_reduce x      is left an undefined x, with the cause and the step of the recv
#     rank 2   y = x + 1         y is undefined; that it reads x is the same mistake once more
#
# To end at the first such read would hide what comes behind it, and each rank would say it in its
# own words. So a value has its cause and the step that left it so (`Undefined.origin`). All that
# relies on it is one diagnosis, and what is expected of it is compared with nothing.
#
# It is how Valgrind's Memcheck treats a byte that no one has written (Seward and Nethercote, "Using
# Valgrind to detect undefined value errors with bit-precision", 2005): to copy it is no error, the
# copy is undefined too, and what is told is where the first one came from. Two things differ. What
# is undefined is a name, or the part of it that an operation was to fill (`Undefined.memory`), and
# never a bit: a backend that failed in the middle says nothing of the rest. And it crosses ranks:
# who receives the value has done nothing wrong, so that the finding is at the step that left it,
# wherever it shows.
#
# A value goes on beside the taint, whatever is there: shapes and dtypes are known all the same, so
# that later calls match, and a mistake that does not depend on the values is still found. A store
# of something known into the name ends the taint there; its copies keep theirs.


def find_taint(state: RankState, call: Call) -> Undefined | None:
    """Return an undefined value among what a call reads, or that it was computed from; or None."""
    process = state.process
    if state.racing or state.misread is not None:
        return RACED if state.racing else state.misread
    if not process.undefined:
        return None
    return next((left for name in call.read if (left := find_undefined(process, call, name))), None)


def _uses(call: Call) -> Iterator[tuple[tuple[Any, ...], frozenset[str], bool, bool]]:
    """Yield what a call uses of held tensors: arrays, held names, whether it reads and writes them.

    The tensors of messages stand in the messages: a batch has several in one argument.
    """
    operation = call.operation
    assert operation is not None
    if isinstance(operation, PointToPoint):
        for message in operation.messages(call.entry):
            names = frozenset(call.read if message.sends else call.targets)
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


def uses(state: RankState, work: Work) -> Iterator[InFlightAccess]:
    """Yield what a call in which its rank is blocked uses of the tensors that the rank holds."""
    scope = state.process.scope
    for memory, names, _, writes in _uses(work.call):
        held = {name: arrays_of(scope.get(name)) for name in names}
        touched = frozenset(name for name, arrays in held.items() if overlap(arrays, memory))
        if touched:
            yield InFlightAccess(work=work, memory=memory, names=touched, writes=writes, whole=True)


def _races_with_itself(state: RankState, call: Call) -> bool:
    """Find messages of one call of which one is stored where another is sent, or stored."""
    assert isinstance(call.operation, PointToPoint)
    messages = call.operation.messages(call.entry)
    if len(messages) == 1:
        return False
    parts = [
        (part, not message.sends)
        for message in messages
        for part in arrays_of(message.payload if message.sends else message.buffer)
        if isinstance(part, np.ndarray) and part.size
    ]
    clashing = _find_clashing(parts)
    if not clashing:
        return False
    roots = {name for names in call.roots.values() for name in names}
    held = {name: arrays_of(state.process.scope.get(name)) for name in roots}
    names = {name for name, arrays in held.items() if overlap(arrays, clashing)}
    state.raced |= names
    words = ", ".join(sorted(names)) or "a tensor"
    _note_race(state, call, f"uses {words} twice at once", call)
    return True


def note_store(
    state: RankState,
    call: Call,
    name: str,
    part: Any,
    cause: Undefined | None,
    *,
    done: bool,
) -> None:
    """Note that a step stores into a part of a tensor: before it, which work it races with.

    When it is done, that part is defined, or undefined for the `cause` given.
    """
    process = state.process
    if not done:
        if state.open_accesses:
            _collide(state, call, arrays_of(part), writes=True)
    elif cause is not None:
        process.undefined[name] = leave_undefined(process, name, part, cause)
    else:
        forget_undefined(process, (name,), part)


def _find_clashing(parts: list[tuple[NDArray[Any], bool]]) -> tuple[NDArray[Any], ...]:
    """Return the arrays that are written and share an element with another; True is written."""
    ordered = sorted(((*byte_span(part), part, writes) for part, writes in parts), key=_low)
    found: list[NDArray[Any]] = []
    near: list[tuple[int, int, NDArray[Any], bool]] = []
    for entry in ordered:
        low, _, part, writes = entry
        near = [each for each in near if each[1] > low]
        for _, _, other, written in near:
            if clash(writes, written) and overlap((part,), (other,)):
                found.append(part if writes else other)
        near.append(entry)
    return tuple(found)


def _low(entry: tuple[int, int, NDArray[Any], bool]) -> int:
    return entry[0]


def _collide(state: RankState, call: Call, memory: tuple[Any, ...], *, writes: bool) -> bool:
    raced = False
    near = state.open_accesses.find_near(memory)
    state.ledger.account.spend(LOOK_WORK * len(near), call.step.mark)
    for access in near:
        if clash(writes, access.writes) and overlap(access.memory, memory):
            raced = True
            state.ledger.account.spend(RACE_WORK, call.step.mark)
            _race(state, call, access)
    return raced


def _race(state: RankState, call: Call, flight: InFlightAccess) -> None:
    """Note a race, and leave undefined what the touched tensor brings.

    What others have got of it by now is noted in `touched`: the run is made once more, and there
    they get something undefined, so that nothing depends on who came first. Raises
    HistoryMissingError where it is not kept which other one a message has met.
    """
    race(state, call, flight, "touches")
    spoil(state, flight)


def spoil(state: RankState, access: InFlightAccess) -> None:
    """Leave undefined what the touched tensor of a work brings, here and on other ranks."""
    state.raced |= access.names
    for post in _find_touched_posts(access):
        post.tainted = post.tainted or RACED
        post.outcome = [(argument, RACED, None) for argument, _, _ in post.outcome]
        if _has_brought(post):
            if post.past and isinstance(post, MessagePost):
                raise HistoryMissingError
            state.touched.add((post.link, state.rank))


def _find_touched_posts(flight: InFlightAccess) -> Iterator[CollectivePost | MessagePost]:
    """Yield what the work of a flight is made of; of messages those that the flight carries."""
    for post in flight.work.posts:
        if isinstance(post, CollectivePost):
            yield post
        elif isinstance(post, MessagePost) and post.message.sends is not flight.writes:
            message = post.message
            given = message.payload if message.sends else message.buffer
            if overlap(arrays_of(given), flight.memory):
                yield post


def _has_brought(post: CollectivePost | MessagePost) -> bool:
    """Whether another rank may have got something of what a rank entered or sent."""
    if isinstance(post, MessagePost):
        return post.message.sends and (post.past or post.partner is not None)
    others = (other for other in post.match.joined.values() if other is not post)
    return post.past or any(other.done_s is not None for other in others)


def race(state: RankState, call: Call, flight: InFlightAccess, does: str) -> None:
    """Note that a call comes near a tensor that is in flight; `does` is the verb."""
    busy = flight.work.call
    names = ", ".join(sorted(flight.names)) or "a tensor"
    still = Clause(f"`{busy.label}`", busy.mark, " still uses it", joint=" while ")
    _note_race(state, call, f"{does} {names}", busy, still)


def _note_race(state: RankState, call: Call, does: str, busy: Call, *more: Clause) -> None:
    """Note a race: all that comes too near to one asynchronous call is one mistake."""
    state.findings.append(
        Symptom(
            name="buffer_race",
            clauses=(
                Clause(f"rank {state.rank} in `{call.label}`", call.mark, f" {does}"),
                *more,
            ),
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"race:{busy.step.index}",
        )
    )


# -------------------------------------------------------------------------------------------------
# The tensors in the hands of asynchronous work: handed over when it starts, back when waited for.
#
# Meanwhile an expression that reads what the work writes notes that it did.

#: units of work of a look at one flight
FLIGHT_WORK = 500


def take(state: RankState, call: Call, work: Work) -> None:
    """Hand the tensors of an asynchronous call over to its work."""
    operation = call.operation
    assert operation is not None
    for message in operation.messages(call.entry) if isinstance(operation, PointToPoint) else ():
        given = message.payload if message.sends else message.buffer
        _note_use(state, call, work, given, writes=not message.sends)
    if isinstance(operation, PointToPoint):
        return
    for param in operation.params:
        if call.roots.get(param.name):
            given = call.entry.arguments.get(param.name)
            _note_use(state, call, work, given, writes=operation.writes(param, call.entry))


def _note_use(state: RankState, call: Call, work: Work, given: Any, *, writes: bool) -> None:
    memory = arrays_of(given)
    held = {
        name: arrays_of(state.process.scope.get(name))
        for names in call.roots.values()
        for name in names
    }
    names = frozenset(name for name, arrays in held.items() if overlap(arrays, memory))
    whole = all(_size(held[name]) <= _size(memory) for name in names)
    flight = InFlightAccess(
        work=work, memory=memory, names=names, writes=writes, whole=whole, span=span_of(memory)
    )
    state.open_accesses.add(flight)
    if writes and whole:
        for name in names:
            state.process.undefined[name] = read_running(flight)
    elif writes:
        busy = state.process.busy
        found = read_running(flight)
        state.process.busy = {**busy, **{name: (*busy.get(name, ()), found) for name in names}}


def read_running(flight: InFlightAccess) -> Undefined:
    """Return what a look at a tensor in flight finds."""
    cause = f"`{flight.work.call.label}` is still running"
    parts = tuple(part for part in flight.memory if isinstance(part, np.ndarray))
    return Undefined(
        cause=cause,
        diagnosis="buffer_race",
        memory=() if flight.whole else parts,
        origin=flight.work.call.step.index,
    )


def _note_busy(state: RankState) -> None:
    """Let the rank's expressions know of which names running work writes a part."""
    state.ledger.account.spend(FLIGHT_WORK * len(state.open_accesses))
    busy: dict[str, list[Undefined]] = {}
    for flight in state.open_accesses:
        for name in flight.names if flight.writes and not flight.whole else ():
            busy.setdefault(name, []).append(read_running(flight))
    state.process.busy = {name: tuple(parts) for name, parts in busy.items()}


def _size(memory: tuple[Any, ...]) -> int:
    return sum(each.size if isinstance(each, np.ndarray) else 1 for each in memory)


def give_back(state: RankState, work: Work) -> None:
    """Take the tensors of a work that was waited for back."""
    ended = state.open_accesses.of(work)
    state.open_accesses.end(work)
    for flight in ended:
        if flight.writes and flight.whole:
            for name in flight.names:
                state.process.undefined.pop(name, None)
        elif flight.writes:
            _note_busy(state)


def spoil_raced(state: RankState) -> None:
    """Leave undefined, on this rank, what two of its operations had at once."""
    if not state.raced:
        return
    open_accesses = {name for flight in state.open_accesses for name in flight.names}
    for name in state.raced - open_accesses:
        state.process.undefined[name] = RACED


# -------------------------------------------------------------------------------------------------
# What a step's expectations look at, while it is undefined or running work still writes it.
#
# To state what a tensor holds is to read it: the run reads it there, and what it finds in a tensor
# in flight depends on timing. A key looks at what its value depends on: `m[0]`, or `sum(m[0])`, at
# that part of `m`. Shapes and dtypes are always there to be asked.


def look(state: RankState, call: Call, observed: dict[str, Any]) -> dict[str, Undefined]:
    """Replace what the step's expectation keys must not be asked for in `observed`.

    A look at a tensor in flight is a race. Returns the names that are undefined because of it.
    """
    stated = call.step.expect.values if call.step.expect is not None else ()
    raced: dict[str, Undefined] = {}
    if not (state.open_accesses or state.process.undefined):
        return raced
    for expectation in stated:
        wanted = _choose(state, expectation)
        if wanted is None:
            continue
        seen = frozenset() if _measures(wanted) else expectation.key.reads
        key = expectation.key.text
        for flight in (flight for flight in state.open_accesses if flight.writes):
            names = _find_touched(state, flight, seen, expectation.key)
            if names and key in observed:
                observed[key] = _read_running(flight)
            names |= flight.names & _read(state, flight, wanted)
            if names:
                race(state, call, flight, "expects a value of")
                scope = state.process.scope
                raced |= {name: measure(_read_running(flight), scope[name]) for name in names}
        if isinstance(observed.get(key), Undefined):
            continue
        if key in observed:
            left = _find_undefined(state, seen, expectation.key)
            observed[key] = observed[key] if left is None else left
    return raced


def _choose(state: RankState, expectation: ValueExpectation) -> Any:
    form: Any = expectation.wanted
    while isinstance(form, PerRank):
        form = state.process.choose(form)
    return form


def _measures(form: Any) -> bool:
    """Whether only a shape or a dtype is wanted."""
    return isinstance(form, TypedValue) and form.value is None


def _find_touched(
    state: RankState, flight: InFlightAccess, seen: frozenset[str], key: Expression
) -> frozenset[str]:
    """Return the names of a flight that a key looks at; of `seen` it reads elements."""
    names = seen & flight.names
    if not names or flight.whole or key.before:
        return names
    return names if depends(key, state.process.scope, read_running(flight).memory) else frozenset()


def _find_undefined(state: RankState, seen: frozenset[str], key: Expression) -> Undefined | None:
    """Return what is undefined of what a key looks at."""
    process = state.process
    for name in sorted(seen & process.undefined.keys()):
        left = process.undefined[name]
        part = bool(left.memory) and not key.before
        if not (part and not depends(key, process.scope, left.memory)):
            return left
    return None


def _read_running(flight: InFlightAccess) -> Undefined:
    cause = f"the start of `{flight.work.call.label}`, which still runs"
    return replace(read_running(flight), cause=cause, memory=())


def _read(state: RankState, flight: InFlightAccess, form: Any) -> frozenset[str]:
    """Return the names whose elements, among those in flight, a wanted value is made of."""
    match form:
        case Expression():
            return _find_touched(state, flight, form.reads, form)
        case ListForm():
            parts = [_read(state, flight, item) for item in form.items]
        case Record():
            parts = [_read(state, flight, item) for item in form.fields.values()]
        case PerRank():
            parts = [_read(state, flight, item) for _, item in form.branches] + [
                _read(state, flight, form.otherwise)
            ]
        case TypedValue():
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
