"""The engine that walks rank by rank: calls begin, wait, complete or raise until nothing moves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.values import Expression, PerRank, Undefined, children
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import Expectation, RaiseSpec, steps_of
from torch_scenarios.model.tolerance import moved, slack_of
from torch_scenarios.model.trace import Event, Failure
from torch_scenarios.model.traffic import Enter, Traffic, size_of
from torch_scenarios.operations.base import (
    LENGTH,
    Collective,
    Compound,
    Disagreement,
    Ending,
    Entry,
    Group,
    GroupCreation,
    Issued,
    Local,
    Message,
    Operation,
    PointToPoint,
    ProgramError,
    Refusal,
    RefusedError,
    Waiting,
    all_pickled,
)
from torch_scenarios.operations.wait import held_by
from torch_scenarios.reference import buffers
from torch_scenarios.reference.buffers import look
from torch_scenarios.reference.choices import Choice, sender_of
from torch_scenarios.reference.matching import (
    CREATION_WORK,
    MEMBER_WORK,
    Before,
    Creating,
    Creations,
    Forgotten,
    Joining,
    Mailbox,
    Meeting,
    Meetings,
    Post,
    Posted,
    Streams,
    Work,
)
from torch_scenarios.reference.semantics import Reading
from torch_scenarios.reference.snapshots import NOTHING, Access, Place, Reads
from torch_scenarios.reference.state import (
    ALL_OUTCOMES,
    Ledger,
    RankState,
    Touched,
    frozen,
    frozen_arguments,
    snapshot,
    store,
    tainted,
)
from torch_scenarios.reference.symptoms import Symptom, clipped, odd_first, several
from torch_scenarios.reference.waits import moves_nothing, needs, needs_of
from torch_scenarios.vocabulary import WORLD

# -------------------------------------------------------------------------------------------------
# What an operation leaves on each rank: the reference semantics applied to those who met.
#
# A collective's result is computed once all members are there; a member that needs fewer (a
# broadcast's leaf needs the source only) gets its own earlier, with the absent ones left out of
# account. Arguments that disagree leave everything undefined that the operation writes.

#: copies of a collective's arguments that there may be at once: wide ones, results, their bounds
COPIES = 3


def settle(
    simulation: Simulation, meeting: Meeting, joining: Joining, joined: Mapping[int, Joining]
) -> None:
    """Give `joining` what its operation leaves there; `joined` are those who entered it so far."""
    operation = joining.call.operation
    assert isinstance(operation, Collective)
    whole = len(joined) == meeting.group.size
    if whole and meeting.settled:
        return
    here = joining.meeting.group.group_rank(joining.rank)
    if not whole and (not _written(joining) or moves_nothing(operation, joining.entry)):
        _freeze(joining)
        return
    involved = (
        dict(joined)
        if whole
        else {at: joined[at] for at in sorted({*needs(operation, joining.entry), here})}
    )
    examine(simulation, meeting, operation, involved)
    taint = next((other.tainted for other in involved.values() if other.tainted), None)
    receivers = joined if whole else {here: joining}
    if meeting.spoiled or taint:
        cause = taint or Undefined(
            cause=f"`{joining.call.label}` with a {meeting.spoiled}", diagnosis=meeting.spoiled
        )
        for other in receivers.values():
            _spoil(other, cause)
    else:
        results, slack = _results(simulation, meeting, involved, joining)
        for at, other in receivers.items():
            if other.done_s is None:
                other.outcome = [
                    (name, _left(value, joining), slack[at].get(name) if slack else None)
                    for name, value in results[at].items()
                ]
    meeting.settled = whole
    if not whole:
        _freeze(joining)


def _left(value: Any, joining: Joining) -> Any:
    """Return what an operation leaves, on its own; what is undefined names the step."""
    if isinstance(value, Undefined):
        return replace(value, origin=joining.call.step.index)
    return frozen(value)


def _results(
    simulation: Simulation, meeting: Meeting, involved: Mapping[int, Joining], joining: Joining
) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """Return what an operation leaves on each member, and its slack, by those who are there.

    What depends on the root alone is computed once for all that pass before all are there.
    """
    operation = joining.call.operation
    assert isinstance(operation, Collective)
    key = None
    if len(involved) < meeting.group.size and operation.from_root:
        root = operation.root(joining.entry)
        key = None if root == joining.entry.group_rank else (operation.name, root)
    if key is not None and key in meeting.early:
        return meeting.early[key]
    entries = _entries(meeting, involved, joining)
    simulation.ledger.room(
        (value for entry in entries for value in entry.arguments.values()),
        joining.call.step.mark,
        copies=COPIES,
    )
    found = operation.reference(entries), slack_of(operation, entries)
    if key is not None:
        meeting.early[key] = found
    return found


def _freeze(joining: Joining) -> None:
    """Keep what a rank contributed, because it goes on and may change it."""
    joining.entry = replace(joining.entry, arguments=frozen_arguments(joining.entry))


def _written(joining: Joining) -> list[str]:
    """Return the arguments that the operation stores into on this rank."""
    operation, entry = joining.call.operation, joining.call.entry
    assert operation is not None
    return [
        param.name
        for param in operation.params
        if operation.writes(param, entry) and entry.arguments.get(param.name) is not None
    ]


def _spoil(joining: Joining, cause: Undefined) -> None:
    joining.outcome = [(name, cause, None) for name in _written(joining)]


def _entries(meeting: Meeting, involved: Mapping[int, Joining], stand_in: Joining) -> list[Entry]:
    entries = []
    for at, rank in enumerate(meeting.group.ranks):
        if at in involved:
            entries.append(involved[at].entry)
        else:
            entries.append(replace(stand_in.entry, rank=rank))
    return entries


def examine(
    simulation: Simulation,
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
    opened: frozenset[str] = ALL_OUTCOMES,
) -> None:
    """Find what the arguments of those who met disagree on; then any of `opened` may come.

    Raises Forgotten where one of them had entered together with other ranks, and has passed: walked
    from the beginning it might have come last, and got nothing.
    """
    if len(involved) < 2:
        return
    entries = [involved[at].entry for at in sorted(involved)]
    for disagreement in operation.disagreements(entries):
        if any(
            each in simulation.entered and each.done_s is not None for each in involved.values()
        ):
            raise Forgotten
        meeting.spoiled = meeting.spoiled or disagreement.diagnosis
        simulation.opened |= opened
        simulation.findings.append(_disagreement(meeting, operation, involved, disagreement))


def examine_present(simulation: Simulation) -> None:
    """Find what those disagree on who entered a collective that not all of them entered.

    Where some went on before others came, what these disagree on is a part of what all do.

    No disagreement brings the part of a member who never comes: only a root that is one for itself
    may do without it, and nothing completes where a rank has ended.
    """
    ended = any(state.state in {"died", "raised"} for state in simulation.ranks)
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        operation = meeting.joined[min(meeting.joined)].call.operation
        assert isinstance(operation, Collective)
        lacking = ended or operation.rooted is None
        opened = ALL_OUTCOMES - {"completes"} if lacking else ALL_OUTCOMES
        opened = frozenset() if meeting.spoiled else opened
        examine(simulation, meeting, operation, meeting.joined, opened)


def _disagreement(
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
    disagreement: Disagreement,
) -> Symptom:
    values = disagreement.values
    counted = Counter(values.values())
    usual = counted.most_common(1)[0][0]
    odd = tuple(meeting.group.ranks[at] for at in sorted(values) if values[at] != usual)
    parts: dict[str, list[int]] = {}
    for at in sorted(values):
        parts.setdefault(values[at], []).append(meeting.group.ranks[at])
    places = _places(involved, values)

    def passes(value: str) -> tuple[str, Mark | None]:
        verb = "passes" if len(parts[value]) == 1 else "pass"
        return f"{verb} {clipped(value)}", places[value]

    first = involved[min(involved)].call
    return Symptom(
        name=disagreement.diagnosis,
        clauses=(
            Clause(
                f"the members of {meeting.group.name} enter `{operation.name}` with different "
                f"{disagreement.what}"
            ),
            *odd_first(parts, passes),
        ),
        kind=f"{disagreement.diagnosis}:{meeting.group.key}:{meeting.position}",
        index=min(joining.call.step.index for joining in involved.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(joining.rank for joining in involved.values())),
        odd=odd,
    )


def _places(involved: Mapping[int, Joining], values: Mapping[int, str]) -> dict[str, Mark | None]:
    """Return, by value, the place of the first call that has it."""
    found: dict[str, Mark | None] = {}
    for at in sorted(values):
        if values[at] not in found:
            found[values[at]] = involved[at].call.mark if at in involved else None
    return found


# -------------------------------------------------------------------------------------------------
# A message that arrives: what the receiver's buffer holds afterwards, or why that is not defined.


def delivered(simulation: Simulation, send: Posted, receive: Posted) -> None:
    """Put a message into the receiver's buffer; a misfit leaves the buffer undefined."""
    payload, buffer = send.payload, receive.message.buffer
    value: Any = payload
    misfit = _misfit(payload, buffer)
    if misfit:
        name, sent, received = misfit
        simulation.opened |= ALL_OUTCOMES
        value = Undefined(cause=f"a message with a {name}", diagnosis=name)
        simulation.findings.append(
            Symptom(
                name=name,
                clauses=(
                    Clause(f"rank {send.rank} in `{send.call.label}`", send.call.mark, f" {sent}"),
                    Clause(
                        f"rank {receive.rank} in `{receive.call.label}`",
                        receive.call.mark,
                        f" {received}",
                    ),
                ),
                kind=f"{name}:{send.call.step.index}:{receive.call.step.index}",
                index=min(send.call.step.index, receive.call.step.index),
                iteration=send.call.iteration,
                ranks=tuple(sorted((send.rank, receive.rank))),
            )
        )
    elif send.tainted is not None or receive.tainted is not None:
        value = send.tainted or receive.tainted
    elif isinstance(payload, np.ndarray):
        value = payload.copy()
    receive.outcome = [(None, value, None)]


def _misfit(payload: Any, buffer: Any) -> tuple[str, str, str] | None:
    """Return how the two ends do not fit, and what each does; a message has elements and no shape.

    torch moves as many bytes as the sender has, whatever the shapes: [1, 4] fills [2, 2].
    """
    if isinstance(payload, np.ndarray) and isinstance(buffer, np.ndarray):
        if payload.dtype != buffer.dtype:
            return "dtype_mismatch", f"sends {payload.dtype}", f"receives {buffer.dtype}"
        if payload.size != buffer.size:
            counts = _counted(payload.size, "element"), _counted(buffer.size, "element")
            return "shape_mismatch", f"sends {counts[0]}", f"receives {counts[1]}"
        return None
    if isinstance(payload, list) and isinstance(buffer, list):
        if len(payload) != len(buffer):
            counts = _counted(len(payload), "object"), _counted(len(buffer), "object")
            return "shape_mismatch", f"sends {counts[0]}", f"receives {counts[1]}"
        return None
    ends = ["objects" if isinstance(each, list) else "a tensor" for each in (payload, buffer)]
    return "dtype_mismatch", f"sends {ends[0]}", f"receives {ends[1]}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# -------------------------------------------------------------------------------------------------
# What raises: refused calls, timeouts on virtual time, and what nothing can move any more.
#
# A call raises at once where torch refuses it. A call that nothing completes stands still for ever
# in the semantics; where the scenario says that it raises (`raises: timeout`), or where it waits
# for a rank that is gone, it raises once nothing else moves.

#: kinds that a call may raise which waits for what never comes
WAITING_KINDS = ("timeout", "peer_lost", "aborted")

#: kinds that a call may raise whose peers gave up before it came
LOST_KINDS = ("peer_lost", "timeout", "aborted", "other")

#: kinds that a stuck call may raise at all; a mismatch that a debug level detects among them
STUCK_KINDS = frozenset({*WAITING_KINDS, "other", "shape_mismatch", "dtype_mismatch"})


class Late(Struct, frozen=True, kw_only=True):
    """A call that raises as it ends: a rank waited too long, or its work was refused."""

    at_s: float
    failure: Failure


def expected(state: RankState, expect: Expectation | None) -> tuple[str, ...]:
    """Return the kinds that `raises` allows on this rank; empty: none."""
    raises = expect.raises if expect else None
    if isinstance(raises, PerRank):
        raises = state.process.choose(raises)
    return raises.kinds if isinstance(raises, RaiseSpec) else ()


def fail(
    state: RankState,
    call: Call,
    failure: Failure,
    start_s: float,
    *,
    spoilt: tuple[str, ...] = (),
) -> None:
    """Let a call raise: the rank goes on if its step expects that, else it ends here.

    `spoilt` are the names whose values it leaves undefined.
    """
    state.process.broken_off = call.whole is not None
    stated = expected(state, call.step.expect)
    agreed = tuple(kind for kind in failure.kinds if kind in stated)
    if agreed:
        failure = replace(failure, kinds=agreed)
    state.add_event(
        call, start_s, state="raised", end_s=state.clock_s, failure=failure, written=spoilt
    )
    state.waiting = ()
    state.state = "ready" if agreed else "raised"


def refused(
    simulation: Simulation,
    state: RankState,
    call: Call,
    refusal: Refusal,
    *,
    spoilt: tuple[str, ...] = (),
) -> bool:
    """Note a call that torch refuses; False where only its wait raises.

    `spoilt` are the names that it may have stored into by then.
    """
    simulation.findings.append(
        Symptom(
            name="invalid_argument",
            clauses=_refusal_told(simulation, state, call, refusal),
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"invalid_argument:{call.step.index}",
        )
    )
    if refusal.late and call.asynchronous:
        return False
    failure = Failure(kinds=(refusal.kind,), message=refusal.message)
    fail(state, call, failure, state.clock_s, spoilt=spoilt)
    return True


def _refusal_told(
    simulation: Simulation, state: RankState, call: Call, refusal: Refusal
) -> tuple[Clause, ...]:
    """Say why torch refuses a call; of a tensor that a rank lacks, which, and who has it."""
    where = f"rank {state.rank} in `{call.label}`"
    told = Clause(where, call.mark, f": {refusal.message}")
    if refusal.lacks is None:
        return (told,)
    scenario = simulation.plan.scenario
    made = {
        name: step
        for step in reversed(steps_of(scenario.steps))
        if step.operation is not None
        for name in step.operation.introduces(step.arguments)
    }
    lacking = [
        name
        for name in sorted(_named_in(call.step.arguments.get(refusal.lacks)))
        if (name in made or name in scenario.tensors) and state.process.scope.get(name) is None
    ]
    if not lacking:
        words = f": its `{refusal.lacks}` is None, because no value is given for this rank"
        return (Clause(where, call.mark, words),)
    name = lacking[0]
    what = f"its `{refusal.lacks}`"
    if refusal.lacks == "p2p_op_list":
        what = f"a tensor in {what}"
    words = f": `{name}` has no value on this rank, so that {what} is None"
    told = Clause(where, call.mark, words)
    if name in scenario.tensors:
        holders = [other.rank for other in simulation.ranks if other.initial.get(name) is not None]
        has = several(holders) if holders else "no rank"
        verb = "has" if len(holders) < 2 else "have"
        mark = getattr(scenario.tensors[name], "mark", None)
        return told, Clause(f"`{name}`", mark, f" is defined here, and only {has} {verb} it")
    maker = made[name]
    does = "has not yet taken" if maker.index >= call.step.index else "does not take"
    words = f" gets its value in this step, which rank {state.rank} {does}"
    return told, Clause(f"`{name}`", maker.mark, words)


def _named_in(form: Any) -> set[str]:
    """Return the names that a form reads."""
    if isinstance(form, Expression):
        return set(form.names)
    return {name for part in ([] if form is None else children(form)) for name in _named_in(part)}


def on_destroyed(simulation: Simulation, state: RankState, call: Call) -> bool:
    """Note a call on a group that this rank destroyed; whether it raises.

    Torch raises where it looks the group up. Otherwise the handle that is kept still works on Gloo,
    which nothing promises: another backend, or another version of torch, may raise.
    """
    operation, group = call.operation, call.entry.group
    if operation is None or group.name not in state.process.destroyed:
        return False
    looks_up = operation.looks_up(call.entry)
    if looks_up is None:
        return False
    where = state.process.destroyed[group.name]
    message = f"the group {group.name} was destroyed" + (f" at {where.short}" if where else "")
    simulation.findings.append(
        Symptom(
            name="invalid_argument",
            clauses=(Clause(f"rank {state.rank} in `{call.label}`", call.mark, f": {message}"),),
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"destroyed:{group.key}",
        )
    )
    if looks_up or group.name == WORLD:
        fail(state, call, Failure(kinds=("invalid_argument",), message=message), state.clock_s)
        return True
    simulation.opened.add("error")
    return False


def unsupported(state: RankState, call: Call) -> bool:
    """Let a call raise of which the scenario says that the backend cannot do it."""
    operation = call.operation
    if operation is None or call.step.expect is None:
        return False
    kinds = expected(state, call.step.expect)
    if operation.backend_kinds(call.entry).isdisjoint(kinds):
        return False
    for name in call.written:
        state.process.undefined[name] = Undefined(
            cause="an unsupported call", origin=call.step.index
        )
    fail(state, call, Failure(kinds=kinds), state.clock_s, spoilt=call.written)
    return True


def too_late(works: tuple[Work, ...]) -> Late | None:
    """Return what a rank raises that waited longer than its timeout, or whose peer had.

    Or that waits for work which was refused after its call had returned.
    """
    for work in works:
        if work.refusal is not None:
            failure = Failure(kinds=(work.refusal.kind,), message=work.refusal.message)
            return Late(at_s=work.start_s, failure=failure)
        timeout_s = timeout_of(work.call)
        for post in work.posts:
            if isinstance(post, Creating):
                if post.failed_s is not None:
                    kinds = WAITING_KINDS if post.gave_up else LOST_KINDS
                    return Late(at_s=post.failed_s, failure=Failure(kinds=kinds))
            elif (post.done_s or 0.0) - post.time_s > timeout_s:
                failure = Failure(kinds=WAITING_KINDS)
                return Late(at_s=post.time_s + timeout_s, failure=failure)
            elif post.time_s - _first_s(post) > timeout_s:
                return Late(at_s=post.time_s, failure=Failure(kinds=LOST_KINDS))
    return None


def _first_s(post: Post) -> float:
    """Return when the first of the posts came that this one met."""
    if isinstance(post, Joining):
        return post.meeting.first_s
    if isinstance(post, Posted) and post.partner is not None:
        return post.partner.time_s
    return post.time_s


def timeout_of(call: Call) -> float:
    """Return the seconds after which a backend gives up on a call: its own, or its group's."""
    given = call.entry.arguments.get("timeout")
    return call.entry.group.timeout_s if given is None else float(given)


def give_up(simulation: Simulation) -> bool:
    """Nothing moves: let those raise who wait for the gone, or are expected to raise."""
    gone = {state.rank for state in simulation.ranks if state.state in {"raised", "died"}}
    stuck = [state for state in simulation.ranks if state.state == "blocked"]
    orphans = _orphans(simulation, stuck, gone) if gone else set()
    raising = [(state, kinds) for state in stuck if (kinds := _kinds(simulation, state, orphans))]
    for state, kinds in raising:
        _abandon(simulation, state, kinds)
    return bool(raising)


def _orphans(simulation: Simulation, stuck: list[RankState], gone: set[int]) -> set[int]:
    """Return the stuck ranks that wait for a rank that is gone."""
    return {
        post.rank
        for need in needs_of(simulation, stuck)
        if not gone.isdisjoint(need.peers)
        for post in need.waiters
    }


def _kinds(simulation: Simulation, state: RankState, orphans: set[int]) -> tuple[str, ...]:
    call = state.call
    assert call is not None
    at_end = simulation.plan.scenario.expect.at_end
    refused = _refused_late(state, call)
    for stated in (expected(state, call.step.expect), expected(state, at_end)):
        kinds = tuple(kind for kind in stated if kind in STUCK_KINDS or kind in refused)
        if kinds:
            return kinds
    return (*WAITING_KINDS, *refused) if state.rank in orphans else ()


def _refused_late(state: RankState, call: Call) -> tuple[str, ...]:
    """Return what else a stuck call may raise: torch looks the group up to log its failure.

    `torch.distributed.c10d_logger` does so for every call but a wait; a destroyed group is unknown.
    """
    unknown = call.entry.group.name in state.process.destroyed
    return ("invalid_argument",) if unknown and not isinstance(call.operation, Waiting) else ()


def _abandon(simulation: Simulation, state: RankState, kinds: tuple[str, ...]) -> None:
    call = state.call
    assert call is not None
    start_s = state.clock_s
    timeout_s = timeout_of(call)
    spoilt: set[str] = set()
    for work in state.waiting:
        timeout_s = timeout_of(work.call)
        spoilt |= {*work.call.written}
        state.broken.add(work.call.entry.group.key)
        for name in work.call.written:
            state.process.undefined[name] = Undefined(
                cause=f"a failed `{work.call.label}`", origin=work.call.step.index
            )
        for post in work.posts:
            if isinstance(post, Joining) and post.done_s is None:
                post.meeting.withdraw(post)
            if isinstance(post, Posted):
                simulation.mailbox.withdraw(post)
    simulation.opened.add("error")
    if "timeout" in kinds:
        state.clock_s += timeout_s
    fail(state, call, Failure(kinds=kinds), start_s, spoilt=tuple(sorted(spoilt)))
    if state.state == "ready":
        simulation.resume(state)


# -------------------------------------------------------------------------------------------------
# How a call ends: what it brought is stored, and the step is noted.


def complete(simulation: Simulation, state: RankState) -> bool:
    """Finish the call that the rank stood in; False if it raised and the rank has ended."""
    call = state.call
    assert call is not None
    works, state.waiting = state.waiting, ()
    start_s = state.clock_s
    late = too_late(works)
    state.clock_s = max([state.clock_s, *(work.done_s for work in works)])
    if late is not None:
        state.clock_s = max(start_s, late.at_s)
        fail(state, call, late.failure, start_s)
        return state.state == "ready"
    slack: dict[str, Any] = {}
    stored = [(work, work.call.written) for work in works]
    for work, names in stored:
        slack |= _apply(simulation, state, work, names)
    simulation.traffic_done(state, works)
    buffers.spoil_raced(state)
    written = stored[0][1] if len(stored) == 1 else _together(names for _, names in stored)
    record(simulation, state, call, start_s=start_s, written=written, slack=slack)
    return True


def _together(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that are among some of several, each once, sorted."""
    return tuple(sorted({name for names in several for name in names}))


def _apply(
    simulation: Simulation, state: RankState, work: Work, names: tuple[str, ...]
) -> dict[str, Any]:
    """Store what the work brought into the names that it may write; returns the slack by name."""
    slack: dict[str, Any] = {}
    buffers.give_back(state, work)
    for post in work.posts:
        for argument, value, bound in post.outcome:
            target = (
                post.message.buffer if argument is None else work.call.entry.arguments.get(argument)
            )
            _note_filled(simulation, state, names, post, argument)
            if target is not None:
                brought = _off(simulation, value, bound, post)
                if isinstance(brought, Undefined) and work.call.whole is not None:
                    state.process.spoilt = brought
                store(state.process, names, target, brought)
            for name in work.call.roots.get(argument or "", ()):
                if bound is not None and state.process.scope.get(name) is target:
                    slack[name] = bound
        post.outcome = []
    return slack


def _note_filled(
    simulation: Simulation,
    state: RankState,
    names: tuple[str, ...],
    post: Post,
    argument: str | None,
) -> None:
    """Note which names a receive fills, whole or in part, and that anyone may have sent it."""
    scope = state.process.scope
    if argument is not None or not isinstance(post, Posted):
        if simulation.brought:
            simulation.brought.difference_update((state.rank, name) for name in names)
        return
    buffer, anyone = post.message.buffer, post.message.peer is None
    for name in names:
        place, whole = (state.rank, name), scope.get(name) is buffer
        if whole and simulation.reads is not None:
            simulation.accesses.append((NOTHING, frozenset({place})))
        if anyone and (whole or len(names) == 1):
            simulation.brought.add(place)
        elif whole:
            simulation.brought.discard(place)


def _off(simulation: Simulation, value: Any, bound: Any, post: Post) -> Any:
    """Return what a post brought; off by its slack, where the run is one that tries that out."""
    if simulation.way is None or bound is None or isinstance(value, Undefined):
        return value
    simulation.moved = simulation.moved or _any(bound)
    return moved(value, bound, simulation.way, post.link)


def _any(bound: Any) -> bool:
    return any(map(_any, bound)) if isinstance(bound, list) else bool(np.any(bound))


def record(
    simulation: Simulation,
    state: RankState,
    call: Call,
    *,
    start_s: float,
    written: tuple[str, ...] | None = None,
    slack: dict[str, Any] | None = None,
    said: tuple[Issued, ...] | None = None,
) -> None:
    """Note that a rank took a step, and what its expectations look at."""
    observed = state.process.observe(call.step)
    state.process.undefined_reads.clear()  # only the keys that this rank is asked for count
    raced = look(state, call, observed)
    if simulation.reads is not None and call.step.expect is not None:
        simulation.accesses.append(simulation.reads.stated(state.rank, call.step))
    state.add_event(
        call,
        start_s,
        end_s=state.clock_s,
        written=call.written if written is None else written,
        slack=slack or {},
        said=said,
        observed=observed,
        raced=raced,
    )


# -------------------------------------------------------------------------------------------------
# How a call begins: what each shape of operation does when a rank takes it.


def start(simulation: Simulation, state: RankState, call: Call, operation: Operation) -> None:
    """Let a rank take a call that nothing refused."""
    _begin_of(type(operation))(simulation, state, call, operation)


def start_refused(simulation: Simulation, state: RankState, call: Call, refusal: Refusal) -> None:
    """Let an asynchronous call return whose wait raises: it meets no other call."""
    work = _work(state, call)
    work.begun, work.refusal = True, refusal
    _return(simulation, state, work)


def _taint(state: RankState, call: Call) -> Undefined | None:
    """Return why what the call carries is undefined, or None."""
    return buffers.RACED if state.racing else state.misread or tainted(state.process, call)


def create_groups(simulation: Simulation) -> None:
    """Torch refuses a wrong group on every rank, before step 1."""
    for creation in simulation.plan.creations:
        if creation.refused is None:
            continue
        label = f"{creation.kind} {creation.spec.name}"
        simulation.findings.append(
            Symptom(
                name="invalid_argument",
                clauses=(Clause(label, creation.spec.mark, f": {creation.refused}"),),
                ranks=tuple(range(simulation.plan.world_size)),
                kind="invalid_argument",
            )
        )
        failure = Failure(kinds=("invalid_argument",), message=creation.refused)
        for state in simulation.ranks:
            state.events.append(
                Event(index=-1, label=label, state="raised", end_s=0.0, failure=failure)
            )
            state.state = "raised"
        simulation.halt()
        return


def _local(
    simulation: Simulation, state: RankState, call: Call, operation: Local | Compound
) -> None:
    start_s, scope = state.clock_s, state.process.scope
    before = {name: scope.get(name) for name in operation.introduces(call.step.arguments)}
    state.process.storing = partial(buffers.note_store, state, call)
    try:
        operation.run(state.process, call.entry)
    except Ending as ending:
        state.state, state.died = "died", ending.how
        state.add_event(call, start_s, state="running")
        return
    except RefusedError as error:
        written = tuple(name for name in call.written if name in state.process.held)
        refusal = Refusal(kind="invalid_argument", message=str(error))
        refused(simulation, state, call, refusal, spoilt=written)
        return
    except ProgramError as error:
        failure = Failure(kinds=("other",), message=str(error), own=True)
        fail(state, call, failure, start_s)
        return
    if isinstance(operation, Compound) and state.process.spoilt is not None:
        state.process.undefined |= dict.fromkeys(call.written, state.process.spoilt)
    buffers.note_reads(state, call)
    if simulation.brought:
        simulation.brought.difference_update((state.rank, name) for name in before)
    if simulation.reads is not None:
        new = (name for name in before if scope.get(name) is not before[name])
        anew = frozenset((state.rank, name) for name in new)
        if anew:
            simulation.accesses.append((NOTHING, anew))
    seconds = operation.duration_s(call.entry)
    if seconds:
        simulation.traffic.pause(state.rank, seconds, call.step.index)
    state.clock_s += seconds
    if isinstance(operation, Compound):
        _whole(simulation, state, call, operation, start_s)
    else:
        record(simulation, state, call, start_s=start_s)


def _whole(
    simulation: Simulation, state: RankState, call: Call, operation: Compound, start_s: float
) -> None:
    """Note a step of several calls, and what it does not compute as one process would."""
    unequal = operation.unequal(call.entry)
    if unequal is not None:
        nth = len([event for event in state.events if event.label == call.label])
        simulation.findings.append(
            Symptom(
                name="not_equivalent",
                clauses=(
                    Clause(
                        f"rank {state.rank} in `{call.label}`",
                        call.mark,
                        f", step {nth}: {unequal.prose}",
                    ),
                ),
                kind=f"not_equivalent:{unequal.model}",
                index=call.step.index,
                iteration=call.iteration,
                ranks=(state.rank,),
            )
        )
    simulation.notes |= dict.fromkeys(operation.notes(call.entry))
    said = state.process.said
    record(simulation, state, call, start_s=start_s, slack=operation.slack(call.entry), said=said)


def _collective(
    simulation: Simulation, state: RankState, call: Call, operation: Collective
) -> None:
    tainted = _taint(state, call)

    def begin(work: Work) -> None:
        joining = simulation.meetings.join(call, work.start_s)
        joining.tainted = tainted or simulation.touch(joining)
        volume, group = operation.volume(call.entry), call.entry.group
        joining.number = simulation.traffic.stroke()
        simulation.traffic.enter(
            Enter(
                number=joining.number,
                ranks=state.rank,
                sent=volume.sent,
                name=operation.name,
                key=group.key,
                size=volume.size,
                members=group.ranks,
                step=call.step.index,
                group=group.name,
            )
        )
        _hold(work, [joining])
        simulation.meet(joining, operation)

    _call(simulation, state, call, begin)


def _messages(
    simulation: Simulation, state: RankState, call: Call, operation: PointToPoint
) -> None:
    tainted = _taint(state, call)

    def begin(work: Work) -> None:
        posts: list[Posted] = []
        for message in operation.messages(call.entry):
            group = message.group or call.entry.group
            post = simulation.mailbox.post(call, group, message, work.start_s)
            if message.sends:
                post.tainted = tainted or simulation.touch(post)
            size, header = _weight(message)
            post.number = simulation.traffic.post(
                state.rank,
                -1 if message.peer is None else message.peer,
                size,
                sends=message.sends,
                step=call.step.index,
                header=header,
                group=group.name,
                begins=not posts,
            )
            posts.append(post)
        _hold(work, posts)
        for post in posts:
            _match(simulation, post)

    _call(simulation, state, call, begin)


def _weight(message: Message) -> tuple[float | None, float | None]:
    """Return the bytes of a message, and of the one before it that tells the lengths of objects."""
    if not message.objects:
        return size_of([message.payload if message.sends else message.buffer]), None
    given = message.payload if message.sends else message.buffer
    sizes = all_pickled(given) if message.sends else [0]
    return None if sizes is None else sum(sizes), LENGTH * len(given)


def _match(simulation: Simulation, post: Posted) -> None:
    """Let a message meet its other side, or leave its sender if a buffer takes it."""
    partner = simulation.mailbox.partner_of(post)
    if partner is not None:
        simulation.pass_on(*((post, partner) if post.message.sends else (partner, post)))
        return
    buffer = simulation.reading.on(post.group).buffer
    if post.message.sends and buffer is not None:
        payload = post.payload
        size_bytes = payload.nbytes if isinstance(payload, np.ndarray) else None
        if buffer.takes(size_bytes, simulation.mailbox.under_way(post)):
            post.payload = frozen(post.payload)
            post.done_s = post.time_s
            simulation.early.append(post)
            simulation.passed(post)


def _creation(
    simulation: Simulation, state: RankState, call: Call, operation: GroupCreation
) -> None:
    group = operation.group(call.entry, simulation.plan.scenario.timeout_s)
    units = CREATION_WORK + MEMBER_WORK * group.size
    simulation.ledger.account.spend(units, call.step.mark)
    local = operation.local(call.entry)
    reading, creations = simulation.reading.on(group), simulation.creations
    series = creations.series(group, state.process, reading.counts, local=local)
    inside = state.rank in group.ranks
    groups = reading.counts == "groups"
    if groups and inside and creations.uses(state.rank, series) in state.process.alive:
        creations.refused.append(call)
        message = "the rank is in a group that has the same name"
        failure = Failure(kinds=("invalid_argument",), message=message)
        fail(state, call, failure, state.clock_s)
        return
    # who is no member of a group that only its members create returns at once
    splits = reading.splits and (not local or inside)
    creating = creations.create(call, state.clock_s, group, series, splits=splits)
    work = _work(state, call)
    work.begun = True
    _hold(work, [creating])
    simulation.creating[state.rank] = creating
    if groups and local and creating.ordinal:
        creations.reused.append(creating)
    passing = _met(simulation, creating)
    for met in {id(met): met for _, met in passing}.values():
        timeouts_s = [timeout_of(each.call) for each in met]
        creations.give_up(met, timeouts_s, in_turn=not reading.splits)
    for other, met in passing:
        other.done_s = max(each.time_s for each in met)
        del simulation.creating[other.rank]
        if other.failed_s is None:
            creations.entered(other)
            simulation.ranks[other.rank].process.join(other.group)
        simulation.wake(simulation.ranks[other.rank])


def _met(simulation: Simulation, creating: Creating) -> list[tuple[Creating, list[Creating]]]:
    """Return who passes now that a rank has come, each with the ranks that it waited for.

    A non-member passes at once; a member needs every other member with the same list. Where groups
    are split off the world, every rank of it is needed.
    """
    reading, creations = simulation.reading.on(creating.group), simulation.creations
    if reading.splits:
        together = list(creations.splitting(creating).values())
        whole = creating.nth is None or len(together) == len(simulation.ranks)
        return [(other, together) for other in together] if whole else []
    if creating.rank not in creating.group.ranks or (reading.found and creating.ordinal):
        return [(creating, [creating])]
    if reading.disputed and creations.disputed(creating.series, creating.ordinal):
        return [
            (other, creations.present(other))
            for other in simulation.creating.values()
            if creations.disputed(other.series, other.ordinal)
        ]
    alike = creations.alike(creating)
    met = alike if len(alike) == len(creating.group.ranks) else []
    return [(other, met) for other in met if other.done_s is None]


def _waiting(simulation: Simulation, state: RankState, call: Call, operation: Waiting) -> None:
    works = tuple(
        work
        for name in operation.handles(call.entry)
        for work in held_by(name, state.handles, lambda work: work.waited)
    )
    state.waiting = works
    state.state = "blocked"
    _police_again(simulation, state, call, works)
    for work in works:
        work.waited = True
        work.waited_at = (call.step.index, call.iteration)
        work.waited_after = len(state.works)
    simulation.go_on(state)


def _police_again(
    simulation: Simulation, state: RankState, call: Call, works: tuple[Work, ...]
) -> None:
    """Note a second wait for the work of a message: it returns at once, or never.

    On Gloo it blocks until the timeout; that of a collective returns (measured on torch 2.13).
    """
    seen: set[int] = set()
    for work in works:
        twice = work.waited or work.number in seen
        seen.add(work.number)
        if not twice or not isinstance(work.call.operation, PointToPoint):
            continue
        at = (call.step.index, call.iteration)
        simulation.again.append((state.rank, at))
        simulation.findings.append(
            Symptom(
                name="double_wait",
                clauses=(
                    Clause(
                        f"rank {state.rank} in `{call.label}`",
                        call.mark,
                        f" waits for `{work.call.label}`, for which it has waited before",
                    ),
                    Clause(f"`{work.call.label}` starts here", work.call.mark),
                ),
                kind=f"double_wait:{call.step.index}",
                index=call.step.index,
                iteration=call.iteration,
                ranks=(state.rank,),
            )
        )


def _call(
    simulation: Simulation, state: RankState, call: Call, begin: Callable[[Work], None]
) -> None:
    """Make a call whose work `begin` posts: it blocks the rank unless it is asynchronous."""
    work = _work(state, call)
    if simulation.streams.stands(work):
        state.waiting, state.state = (work,), "blocked"
        return
    if call.asynchronous:
        _return(simulation, state, work)
    simulation.streams.enqueue(work, partial(begin, work))
    simulation.go_on(state)


def _hold(work: Work, posts: Sequence[Post]) -> None:
    """Let a work be made of posts."""
    work.posts = list(posts)
    for post in posts:
        post.work = work


def _work(state: RankState, call: Call) -> Work:
    """Return the work of a call, none of it posted; an asynchronous call has returned."""
    at, number = len(state.events), len(state.works)
    work = Work(rank=state.rank, call=call, start_s=state.clock_s, at=at, number=number)
    state.works.append(work)
    if not call.asynchronous:
        work.waited = True
        state.waiting = (work,)
        state.state = "blocked"
    return work


def _return(simulation: Simulation, state: RankState, work: Work) -> None:
    """Let an asynchronous call return: its work has a handle, and the call's tensors."""
    call = work.call
    work.handle = call.handle
    if work.handle is not None:
        state.handles[work.handle] = work
        state.process.keep(call)
    buffers.take(state, call, work)
    record(simulation, state, call, start_s=state.clock_s, written=())


_SHAPES: tuple[tuple[type[Operation], Any], ...] = (
    (Local, _local),
    (Collective, _collective),
    (PointToPoint, _messages),
    (Waiting, _waiting),
    (GroupCreation, _creation),
    (Compound, _local),
)


@cache
def _begin_of(shape: type[Operation]) -> Any:
    """Return what begins a call of an operation's class."""
    return next(begin for each, begin in _SHAPES if issubclass(shape, each))


# -------------------------------------------------------------------------------------------------
# One run of all ranks in one process, under one reading of the semantics and one schedule.
#
# Deterministic: ranks advance in order, each as far as it can; virtual time passes only by `sleep`
# and by waiting for others. A *reading* says how much a correct implementation may let pass:
#
# * sends are a rendezvous (they wait for the receiver), or buffered;
# * a rank leaves a collective as soon as nothing it *needs* is missing, or (strict) only once every
#   member has entered;
# * what is called begins at once, or behind what was called before it
#   (:mod:`torch_scenarios.reference.engine`).
#
# What stands still at the end is left in the state: :mod:`torch_scenarios.reference.diagnoses`
# explains it.

#: (the run, the options as send and receive) -> which of them to try, in order
Choosing: TypeAlias = Callable[["Simulation", Sequence[tuple[Posted, Posted]]], Sequence[int]]


class StartState(Before, Protocol):
    """Where ranks have come to before they go on by themselves, and what they have under way."""

    def ledger(self) -> Ledger:
        """Return a ledger that goes on from what the ranks have done."""

    def traffic(self) -> Traffic:
        """Return what went between the ranks, to be added to."""

    def state(self, rank: int, arrays: Arrays, ledger: Ledger, /) -> RankState:
        """Return a rank where it stands, with nothing under way yet."""

    def created(self, rank: int, /) -> Iterator[tuple[Call, Group]]:
        """Yield the creations that a rank has behind it, each with the group."""

    def enter(
        self, state: RankState, meetings: Meetings, mailbox: Mailbox, /
    ) -> list[Joining | Posted]:
        """Let a rank have under way what it has; returns what waits for others."""


class Simulation:
    """The state of all ranks, advanced until nothing moves."""

    def __init__(  # noqa: PLR0913 -- each of them changes what is run
        self,
        plan: Plan,
        arrays: Arrays,
        *,
        reading: Reading,
        schedule: tuple[int, ...] = (),
        limits: Limits = DEFAULT,
        way: int | None = None,
        trained: bool = False,
        choosing: Choosing | None = None,
        reads: Reads | None = None,
        start: StartState | None = None,
        touched: AbstractSet[Touched] = frozenset(),
    ) -> None:
        """Bind every rank's initial values; raises ScenarioError where one cannot be computed.

        `way` lets every reduction be off by its error bound
        (:mod:`torch_scenarios.model.tolerance`), and with it, where `trained` says so, what ranks
        compute of a model by its rounding. `choosing` is asked, at a choice that the schedule
        leaves open, which options to try; with none of them the run is `cut` there. `reads` lets
        the run note what is read and written. With a `start` the ranks go on from where that has
        them; the reading must let pass all that was done there. `touched` is what races were found
        to bring to other ranks: it is undefined.
        """
        self.plan = plan
        self.reading = reading
        self.schedule = schedule
        #: what each receive from anyone could take, and what it took
        self.choices: list[Choice] = []
        self.cut = False
        self.reads = reads
        #: what ranks read and then write whole, in order; kept where `reads` is given
        self.accesses: list[Access] = []
        #: the names that hold what a receive from anyone brought last
        self.brought: set[Place] = set()
        self._choosing = choosing
        self.meetings = Meetings(start)
        self.mailbox = Mailbox(reading, start)
        self.traffic = Traffic(plan.world_size) if start is None else start.traffic()
        self.streams = Streams(reading)
        self.creations = Creations()
        #: rank -> the creation that it waits in
        self.creating: dict[int, Creating] = {}
        #: step -> the calls of a collective on ranks that are not in its group, by rank
        self.outside: dict[int, dict[int, Call]] = {}
        #: the indexes of two steps that met in a collective -> a call of each
        self.together: dict[tuple[int, int], tuple[Joining, Joining]] = {}
        self.findings: list[Symptom] = []
        #: what a case should know of its values and need not care for, each once
        self.notes: dict[str, None] = {}
        #: what races bring to other ranks; more than was known where the run is to be made again
        self.touched = set(touched)
        self.opened: set[str] = set()
        #: whether a rank left a collective before every member had entered
        self.hurried = False
        #: the collectives that ranks waited in before they went on by themselves
        self.entered: set[Joining] = set()
        self.way = way
        self._trained = trained and bool(plan.scenario.models)
        #: whether some result was off by its slack
        self.moved = self._trained
        #: the sends that a buffer took before their receive was posted
        self.early: list[Posted] = []
        #: where a rank waits again for a message's work: its place
        self.again: list[tuple[int, tuple[int, tuple[int, ...]]]] = []
        #: messages that met although their tags differ: send and receive
        self.crossed: list[tuple[Posted, Posted]] = []
        self.ledger = Ledger(limits) if start is None else start.ledger()
        self._ready: deque[RankState] = deque()
        self.ranks: list[RankState] = []
        if start is None:
            self._begin(arrays)
        else:
            self._continue(start, arrays)

    def _begin(self, arrays: Arrays) -> None:
        """Let every rank stand before its first step."""
        plan, ledger = self.plan, self.ledger
        for rank in range(plan.world_size):
            process = Process(plan, rank, arrays, ledger=ledger)
            process.way = self.way if self._trained else None
            state = RankState(
                rank=rank,
                process=process,
                walker=process.walk(),
                ledger=ledger,
                findings=self.findings,
                touched=self.touched,
                truncated=rank in plan.scenario.truncated,
            )
            state.initial = {name: snapshot(process, name) for name in sorted(process.held)}
            self.ranks.append(state)
            self._ready.append(state)

    def _continue(self, start: StartState, arrays: Arrays) -> None:
        """Let every rank stand where it has come to, with what it has under way."""
        self.ranks = [
            start.state(rank, arrays, self.ledger) for rank in range(self.plan.world_size)
        ]
        for state in self.ranks:
            state.findings, state.touched = self.findings, self.touched
        self._ready.extend(state for state in self.ranks if state.state == "ready")
        for state in self.ranks:
            for call, group in start.created(state.rank):
                counts = self.reading.counts
                series = self.creations.series(group, state.process, counts, local=False)
                made = self.creations.create(call, 0.0, group, series, splits=False)
                made.done_s, made.past = 0.0, True
                self.creations.entered(made)
        waiting = [
            post for state in self.ranks for post in start.enter(state, self.meetings, self.mailbox)
        ]
        self.entered = {post for post in waiting if isinstance(post, Joining)}
        if self.touched:
            self._spoil_past()
        self.mailbox.count_anew()
        for post in waiting:
            if isinstance(post, Joining) or post.message.sends:
                post.tainted = post.tainted or self.touch(post)
            if isinstance(post, Posted):
                if post.partner is None:
                    _match(self, post)
            elif post.done_s is None:
                assert isinstance(post.call.operation, Collective)
                self.meet(post, post.call.operation)

    def _spoil_past(self) -> None:
        """Leave undefined what collectives brought before, where a member touches its tensor since.

        Raises Forgotten where a member has waited for it before: what it did then is not undone.
        """
        links = {link for link, _ in self.touched}
        found: dict[str, list[Joining]] = {}
        for post in (post for state in self.ranks for work in state.works for post in work.posts):
            if isinstance(post, Joining) and post.past and post.link in links:
                found.setdefault(post.link, []).append(post)
        for posts in found.values():
            if len(posts) < posts[0].meeting.group.size:
                raise Forgotten
            for post in posts:
                _spoil(post, buffers.RACED)

    def touch(self, post: Joining | Posted) -> Undefined | None:
        """Return what others get of a tensor that is known to be touched meanwhile, or None."""
        known = bool(self.touched) and (post.link, post.rank) in self.touched
        return buffers.RACED if known else None

    # ------------------------------------------------------------------ the loop

    def run(self) -> Simulation:
        """Advance until every rank has ended or stands still for good."""
        create_groups(self)
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            if self.streams.advance() or self._choose_message():
                continue
            if self.cut or not give_up(self):
                return self

    def _advance(self, state: RankState) -> None:
        """Take the rank's steps until it blocks or ends."""
        while state.state == "ready":
            self.ledger.step(state.call.step.mark if state.call else None)
            call = next(state.walker, None)
            buffers.note_reads(state, call)
            if call is None:
                state.state = "finished"
                state.call = None
                return
            state.call = call
            if self.reads is not None:
                self.accesses.append(self.reads.given(state.rank, call.step))
            self._take(state, call)

    def _take(self, state: RankState, call: Call) -> None:
        operation = call.operation
        if operation is None:
            record(self, state, call, start_s=state.clock_s)
            return
        outside = call.entry.group_rank < 0
        if outside and isinstance(operation, Collective):
            # torch warns and returns None
            if call.entry.group.name in state.process.scope:
                self.outside.setdefault(call.step.index, {})[state.rank] = call
            record(self, state, call, start_s=state.clock_s)
            return
        if on_destroyed(self, state, call):
            return
        refusal = operation.refuse(call.entry)
        if refusal is not None:
            if not refused(self, state, call, refusal):
                start_refused(self, state, call, refusal)
            return
        if unsupported(state, call):
            return
        state.racing = buffers.check(state, call)
        start(self, state, call, operation)

    # ------------------------------------------------------------------ meeting

    def traffic_done(self, state: RankState, works: tuple[Work, ...]) -> None:
        """Note that a rank returns from a step which completes these works."""
        for work in works:
            for post in work.posts:
                if isinstance(post, Posted):
                    self.traffic.finish(state.rank, post.number, post.row)
                elif isinstance(post, Joining) and post.number >= 0:
                    self.traffic.finish(state.rank, post.number, None)

    def meet(self, joining: Joining, operation: Collective) -> None:
        """Let the ranks pass that miss no other, and give them what they hold afterwards."""
        meeting = joining.meeting
        joined = meeting.of(operation.name)
        if len(joined) == meeting.group.size:
            last_s = max(other.time_s for other in joined.values())
            if operation.takes_objects:
                self._weigh(operation, joined)
            settle(self, meeting, joining, joined)
            if self.reading.strict and meeting.spoiled:
                return
            for other in list(joined.values()):
                self._pass(other, last_s)
            self._note_steps(joined)
            return
        if self.reading.strict:
            return
        hopeful = meeting.hopeful.pop((operation.name, joining.entry.group_rank), [])
        needed = needs(operation, joining.entry)
        if len(needed) < meeting.group.size:
            hopeful.append((joining, iter(needed)))
        for other, coming in hopeful:
            self._hope(meeting, other, coming)

    def _note_steps(self, joined: Mapping[int, Joining]) -> None:
        """Note the steps that met, each by its lowest rank, whichever member came last."""
        first: dict[int, Joining] = {}
        for at in sorted(joined):
            first.setdefault(joined[at].call.step.index, joined[at])
        if len(first) < 2:
            return
        one = first.pop(min(first))
        for index, other in first.items():
            indexes = (one.call.step.index, index)
            known = self.together.get(indexes)
            if known is None or one.rank < known[0].rank:
                self.together[indexes] = (one, other)

    def _weigh(self, operation: Collective, joined: Mapping[int, Joining]) -> None:
        """Note the bytes of a collective of objects, all of whose members are there.

        Those that disagree on the root may pass no object at all.
        """
        members = [joined[at] for at in sorted(joined)]
        if any(operation.refuse(each.entry) is not None for each in members):
            return
        entries = [each.entry for each in members]
        if operation.rooted and len({operation.root(entry) for entry in entries}) > 1:
            return
        calls = operation.tensor_calls(entries)
        parts = tuple((call.name, call.size) for call in calls)
        for at, member in enumerate(members if calls else ()):
            self.traffic.weigh(member.number, sum(call.sent[at] for call in calls), parts)

    def _hope(self, meeting: Meeting, joining: Joining, coming: Iterator[int]) -> None:
        """Let a member pass if all that it needs are there; `coming` are those not looked at."""
        operation = joining.call.operation
        assert isinstance(operation, Collective)
        here = meeting.of(operation.name)
        missing = next((at for at in coming if at not in here), None)
        if missing is None:
            needed = needs(operation, joining.entry)
            coming = iter(needed)
            missing = next((at for at in coming if at not in here), None)  # it gave up meanwhile
        if missing is not None:
            meeting.hopeful.setdefault((operation.name, missing), []).append((joining, coming))
            return
        self.hurried = True
        settle(self, meeting, joining, here)
        self._pass(joining, max([joining.time_s, *(here[at].time_s for at in needed)]))

    def _pass(self, joining: Joining, time_s: float) -> None:
        if joining.done_s is None:
            joining.done_s = time_s
            self.passed(joining)

    def pass_on(self, send: Posted, receive: Posted) -> None:
        """Let a message arrive."""
        self.mailbox.meet(send, receive)
        self.traffic.meet(send.number, send.row, receive.number, receive.row)
        if send.message.tag != receive.message.tag:
            self.crossed.append((send, receive))
        delivered(self, send, receive)
        time_s = max(send.time_s, receive.time_s)
        for post in (send, receive):
            if post.done_s is None:
                post.done_s = time_s
            self.passed(post)

    def _choose_message(self) -> bool:
        """Let the next receive from anyone take one of the messages that can really reach it.

        Or let a receive that names the sender, although posted later, take it: torch promises no
        order between the two, and Gloo tells a sender of receives that name it alone.
        """
        options = [
            pair
            for receive, candidates in self.mailbox.open()
            for pair in self._pairs(receive, candidates)
        ]
        if options:
            chosen = self._chosen(options)
            if chosen is None:
                self.cut = True
                return False
            self.choices.append(
                Choice(
                    options=tuple(options),
                    chosen=chosen,
                    mark=len(self.accesses),
                    posted=self.mailbox.count,
                    senders=tuple(sender_of(self, send) for send, _ in options),
                )
            )
            self.pass_on(*options[chosen])
            return True
        # a specific receive that an earlier receive from anyone had held back
        for receive in self.mailbox.receives:
            partner = self.mailbox.partner_of(receive)
            if partner is not None:
                self.pass_on(partner, receive)
                return True
        return False

    def _pairs(self, receive: Posted, candidates: list[Posted]) -> Iterator[tuple[Posted, Posted]]:
        """Yield which message may be taken here, by this receive or one that names its sender."""
        yield from ((send, receive) for send in candidates)
        for send in candidates:
            named = self.mailbox.named(send)
            if named is not None:
                yield send, named

    def _chosen(self, options: list[tuple[Posted, Posted]]) -> int | None:
        at = len(self.choices)
        if at < len(self.schedule):
            return self.schedule[at]
        if self._choosing is None:
            return 0
        return next(iter(self._choosing(self, options)), None)

    # ------------------------------------------------------------------ going on

    def dissolve(self) -> None:
        """Part what refers to each other, once all is known: it is freed at once, uncollected.

        A trace still names what works met, when it is asked.
        """
        self.meetings.dissolve()
        self._choosing = None
        for state in self.ranks:
            state.process.storing = None
            for post in (post for work in state.works for post in work.posts):
                post.work = None
                if isinstance(post, Posted) and post.message.sends:
                    post.partner = None

    def halt(self) -> None:
        """Let no rank take a step: the program ended before the first."""
        self._ready.clear()

    def resume(self, state: RankState) -> None:
        """Let a rank that raised, and whose step expected that, take its next step."""
        self._ready.append(state)

    def passed(self, post: Post) -> None:
        """Let go on what waited for a post that may pass now: its rank, and its stream."""
        if post.work is not None:
            self.streams.note(post.work)
        self.wake(self.ranks[post.rank])

    def wake(self, state: RankState) -> None:
        """Let a rank go on whose call has nothing left to wait for."""
        if _may_go_on(state):
            state.state = "ready"
            if complete(self, state):
                self._ready.append(state)

    def go_on(self, state: RankState) -> None:
        """Complete the call that the rank just made, if nothing blocks it."""
        if _may_go_on(state):
            state.state = "ready"
            complete(self, state)


def _may_go_on(state: RankState) -> bool:
    """Return whether a rank stands in a call that has nothing left to wait for."""
    return state.state == "blocked" and all(work.done for work in state.waiting)
