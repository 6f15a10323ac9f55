"""What raises: refused calls, timeouts on virtual time, and what nothing can move any more.

A call raises at once where torch refuses it. A call that nothing completes stands still for ever
in the semantics; where the scenario says that it raises (`raises: timeout`), or where it waits for
a rank that is gone, it raises once nothing else moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner.forms import PerRank
from runner.operations.base import Waiting
from runner.operations.entries import Undefined
from runner.plan import WORLD
from runner.reference.findings import Finding
from runner.reference.posts import Joining, Posted
from runner.reference.waits import needs_of
from runner.scenario import RaiseSpec
from runner.trace import Failure

if TYPE_CHECKING:
    from runner.call import Call
    from runner.operations.entries import Refusal
    from runner.reference.posts import Post, Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState
    from runner.scenario import Expectation

#: kinds that a call may raise which waits for what never comes
WAITING_KINDS = ("timeout", "peer_lost", "aborted")

#: kinds that a stuck call may raise at all; a mismatch that a debug level detects among them
STUCK_KINDS = frozenset({*WAITING_KINDS, "other", "shape_mismatch", "dtype_mismatch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A call that raises as it ends: somebody waited too long, or its work was refused."""

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
    stated = expected(state, call.step.expect)
    agreed = tuple(kind for kind in failure.kinds if kind in stated)
    if agreed:
        failure = replace(failure, kinds=agreed)
    state.add_event(
        call, start_s, state="raised", end_s=state.clock_s, failure=failure, written=spoilt
    )
    state.waiting = ()
    state.state = "ready" if agreed else "raised"


def refused(simulation: Simulation, state: RankState, call: Call, refusal: Refusal) -> bool:
    """Note a call that torch refuses; False where only its wait raises."""
    place = f" ({call.step.mark.short})" if call.step.mark else ""
    simulation.findings.append(
        Finding(
            name="invalid_argument",
            prose=f"rank {state.rank} in `{call.label}`{place}: {refusal.message}",
            index=call.step.index,
            iteration=call.iteration,
            ranks=(state.rank,),
            kind=f"invalid_argument:{call.step.index}",
        )
    )
    if refusal.late and call.asynchronous:
        return False
    failure = Failure(kinds=(refusal.kind,), message=refusal.message)
    fail(state, call, failure, state.clock_s)
    return True


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
    place = f" ({call.step.mark.short})" if call.step.mark else ""
    message = f"the group {group.name} was destroyed" + (f" at {where.short}" if where else "")
    simulation.findings.append(
        Finding(
            name="invalid_argument",
            prose=f"rank {state.rank} in `{call.label}`{place}: {message}",
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
        state.process.undefined[name] = Undefined(cause="an unsupported call")
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
            if (post.done_s or 0.0) - post.time_s > timeout_s:
                failure = Failure(kinds=WAITING_KINDS)
                return Late(at_s=post.time_s + timeout_s, failure=failure)
            if post.time_s - _first_s(post) > timeout_s:
                failure = Failure(kinds=("peer_lost", "timeout", "aborted", "other"))
                return Late(at_s=post.time_s, failure=failure)
    return None


def _first_s(post: Post) -> float:
    """Return when the first of those came whom this post met."""
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
    assert call is not None  # noqa: S101 -- a blocked rank stands in a call
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
    assert call is not None  # noqa: S101 -- a blocked rank stands in a call
    start_s = state.clock_s
    timeout_s = timeout_of(call)
    spoilt: set[str] = set()
    for work in state.waiting:
        timeout_s = timeout_of(work.call)
        spoilt |= {*work.call.written}
        state.broken.add(work.call.entry.group.key)
        for name in work.call.written:
            state.process.undefined[name] = Undefined(cause=f"a failed `{work.call.label}`")
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
