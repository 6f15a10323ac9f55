"""How a call begins: what each shape of operation does when a rank takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.operations.base import Collective, GroupCreation, Local, PointToPoint, Waiting
from runner.operations.entries import Ending, ProgramError
from runner.reference import buffers, completing, raising
from runner.reference.findings import Finding
from runner.reference.posts import Creating, Posted, Work
from runner.reference.values import frozen, tainted
from runner.trace import Event, Failure

if TYPE_CHECKING:
    from runner.operations.base import Operation
    from runner.operations.entries import Undefined
    from runner.program import Call
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


def start(simulation: Simulation, state: RankState, call: Call, operation: Operation) -> None:
    """Let a rank take a call that nothing refused."""
    for shape, begin in _SHAPES:
        if isinstance(operation, shape):
            begin(simulation, state, call, operation)
            break


def _taint(state: RankState, call: Call) -> Undefined | None:
    """Return why what the call carries is undefined, or None."""
    return buffers.RACED if state.racing else tainted(state.process, call)


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
    start_s = state.clock_s
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
    state.clock_s += operation.duration_s(call.entry)
    completing.record(simulation, state, call, start_s=start_s)


def _collective(
    simulation: Simulation, state: RankState, call: Call, operation: Collective
) -> None:
    joining = simulation.meetings.join(call, state.clock_s)
    joining.tainted = _taint(state, call)
    _post(simulation, state, call, [joining])
    simulation.meet(joining, operation)
    simulation.go_on(state)


def _messages(
    simulation: Simulation, state: RankState, call: Call, operation: PointToPoint
) -> None:
    posts: list[Posted] = []
    for message in operation.messages(call.entry):
        group = message.group or call.entry.group
        post = simulation.mailbox.post(call, group, message, state.clock_s)
        if message.sends:
            post.tainted = _taint(state, call)
            if simulation.reading.buffered:
                post.payload = frozen(post.payload)
        posts.append(post)
    _post(simulation, state, call, posts)
    for post in posts:
        if post.message.sends and simulation.reading.buffered:
            post.done_s = post.time_s
        partner = simulation.mailbox.partner_of(post)
        if partner is not None:
            simulation.pass_on(*((post, partner) if post.message.sends else (partner, post)))
    simulation.go_on(state)


def _creation(
    simulation: Simulation, state: RankState, call: Call, operation: GroupCreation
) -> None:
    group = operation.group(call.entry, simulation.plan.scenario.timeout_s)
    local = operation.local(call.entry)
    creating = simulation.creations.create(call, state.clock_s, group, local=local)
    _post(simulation, state, call, [creating])
    here = simulation.creations.beside(creating)
    for other in list(here.values()):
        if other.done_s is None and _agreed(other, here):
            members = other.group.ranks if other.rank in other.group.ranks else (other.rank,)
            other.done_s = max(here[rank].time_s for rank in members)
            simulation.ranks[other.rank].process.join(other.group)
            simulation.wake(simulation.ranks[other.rank])


def _agreed(creating: Creating, here: dict[int, Creating]) -> bool:
    """A non-member passes at once; a member needs every other member with the same list."""
    members = creating.group.ranks
    if creating.rank not in members:
        return True
    return all(rank in here and here[rank].group.ranks == members for rank in members)


def _waiting(simulation: Simulation, state: RankState, call: Call, operation: Waiting) -> None:
    works = tuple(
        state.handles[name] for name in operation.handles(call.entry) if name in state.handles
    )
    state.waiting = works
    state.state = "blocked"
    for work in works:
        work.waited = True
        work.waited_at = (call.step.index, call.iteration)
    simulation.go_on(state)


def _post(simulation: Simulation, state: RankState, call: Call, posts: list[Any]) -> None:
    at = len(state.events)
    work = Work(rank=state.rank, call=call, start_s=state.clock_s, posts=posts, at=at)
    for post in posts:
        post.work = work
    state.works.append(work)
    if call.asynchronous:
        work.handle = call.step.handle
        if work.handle is not None:
            state.handles[work.handle] = work
            state.process.handles.add(work.handle)
        buffers.take(state, call, work)
        completing.record(simulation, state, call, start_s=state.clock_s, written=())
    else:
        work.waited = True
        state.waiting = (work,)
        state.state = "blocked"


_SHAPES: tuple[tuple[type[Operation], Any], ...] = (
    (Local, _local),
    (Collective, _collective),
    (PointToPoint, _messages),
    (Waiting, _waiting),
    (GroupCreation, _creation),
)
