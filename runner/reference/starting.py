"""How a call begins: what each shape of operation does when a rank takes it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import Collective, GroupCreation, Local, PointToPoint, Waiting
from runner.operations.entries import Ending, ProgramError
from runner.operations.wait import held_by
from runner.reference import buffers, completing, flying, raising
from runner.reference.findings import Finding
from runner.reference.posts import Creating, Post, Posted, Work
from runner.reference.snapshots import NOTHING
from runner.reference.values import frozen, tainted
from runner.trace import Event, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.call import Call
    from runner.operations.base import Operation
    from runner.operations.entries import Refusal, Undefined
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


#: units of work of a creation for each rank of the world, which every rank looks at
MEMBER_WORK = 500


def start(simulation: Simulation, state: RankState, call: Call, operation: Operation) -> None:
    """Let a rank take a call that nothing refused."""
    for shape, begin in _SHAPES:
        if isinstance(operation, shape):
            begin(simulation, state, call, operation)
            break


def start_refused(simulation: Simulation, state: RankState, call: Call, refusal: Refusal) -> None:
    """Let an asynchronous call return whose wait raises: it meets nobody."""
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
        place = f" ({creation.spec.mark.short})" if creation.spec.mark else ""
        simulation.findings.append(
            Finding(
                name="invalid_argument",
                prose=f"{label}{place}: {creation.refused}",
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


def _local(simulation: Simulation, state: RankState, call: Call, operation: Local) -> None:
    start_s, scope = state.clock_s, state.process.scope
    before = {name: scope.get(name) for name in operation.introduces(call.step)}
    try:
        operation.run(state.process, call.entry)
    except Ending as ending:
        state.state, state.died = "died", ending.how
        state.add_event(call, start_s, state="running")
        return
    except ProgramError as error:
        failure = Failure(kinds=("other",), message=str(error), own=True)
        raising.fail(state, call, failure, start_s)
        return
    buffers.note_reads(simulation, state, call)
    anew = frozenset((state.rank, name) for name in before if scope.get(name) is not before[name])
    simulation.brought.difference_update((state.rank, name) for name in before)
    if simulation.reads is not None and anew:
        simulation.accesses.append((NOTHING, anew))
    state.clock_s += operation.duration_s(call.entry)
    completing.record(simulation, state, call, start_s=start_s)


def _collective(
    simulation: Simulation, state: RankState, call: Call, operation: Collective
) -> None:
    tainted = _taint(state, call)

    def begin(work: Work) -> None:
        joining = simulation.meetings.join(call, work.start_s)
        joining.tainted = tainted
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
                post.tainted = tainted
            posts.append(post)
        _hold(work, posts)
        for post in posts:
            _match(simulation, post)

    _call(simulation, state, call, begin)


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
    members = len(simulation.ranks)
    simulation.ledger.account.spend(MEMBER_WORK * members, call.step.mark)
    group = operation.group(call.entry, simulation.plan.scenario.timeout_s)
    local = operation.local(call.entry)
    # who is no member of a group that only its members create returns at once
    splits = simulation.reading.on(group).splits and (not local or state.rank in group.ranks)
    creating = simulation.creations.create(call, state.clock_s, group, local=local, splits=splits)
    work = _work(state, call)
    work.begun = True
    _hold(work, [creating])
    simulation.creating.append(creating)
    for other in list(simulation.creating):
        met = _met(simulation, other)
        if met is not None:
            other.done_s = max(each.time_s for each in met)
            simulation.creating.remove(other)
            simulation.ranks[other.rank].process.join(other.group)
            simulation.wake(simulation.ranks[other.rank])


def _met(simulation: Simulation, creating: Creating) -> list[Creating] | None:
    """Return with whom a rank passes; None where it does not pass.

    A non-member passes at once; a member needs every other member with the same list. Where groups
    are split off the world, every rank of it is needed.
    """
    reading, creations = simulation.reading.on(creating.group), simulation.creations
    if reading.splits:
        whole = creating.nth is None or len(creations.splitting(creating)) == len(simulation.ranks)
        return list(creations.splitting(creating).values()) if whole else None
    members = creating.group.ranks
    if creating.rank not in members:
        return [creating]
    here = creations.beside(creating)
    if len(here) < len(members) and not reading.disputed:
        return None
    met = [here[rank] for rank in members if rank in here]
    if reading.disputed and creations.disputed(creating.series, creating.ordinal):
        return met
    alike = len(met) == len(members) and all(other.group.ranks == members for other in met)
    return met if alike else None


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
        place = f" ({call.step.mark.short})" if call.step.mark else ""
        started = f" ({work.call.step.mark.short})" if work.call.step.mark else ""
        simulation.findings.append(
            Finding(
                name="double_wait",
                prose=(
                    f"rank {state.rank} in `{call.label}`{place} waits for "
                    f"`{work.call.label}`{started}, for which it has waited before"
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
    flying.take(state, call, work)
    completing.record(simulation, state, call, start_s=state.clock_s, written=())


_SHAPES: tuple[tuple[type[Operation], Any], ...] = (
    (Local, _local),
    (Collective, _collective),
    (PointToPoint, _messages),
    (Waiting, _waiting),
    (GroupCreation, _creation),
)
