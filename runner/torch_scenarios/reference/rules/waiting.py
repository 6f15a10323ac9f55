"""Waiting: when work is done, who waits too long, and who may touch a tensor meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import PointToPoint, Waiting
from torch_scenarios.operations.wait import find_work
from torch_scenarios.reference.effects import Abandon, Await, Effect, Open, Raise
from torch_scenarios.reference.matching import (
    CollectivePost,
    CreationPost,
    FunctionCall,
    MessagePost,
    Post,
    Work,
)
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.call import LOST_KINDS, STUCK_KINDS, WAITING_KINDS, expect
from torch_scenarios.reference.rules.words import name_second_wait
from torch_scenarios.reference.state import RankState, Run
from torch_scenarios.reference.waits import needs_of


@rule(
    "A call with `async_op`, and `isend` and `irecv`, return at once with a handle. The work is "
    "complete on a rank once that waits for the handle; what it brings is in place only then.",
    source="torch.distributed, Synchronous and asynchronous collective operations; MPI 4.1, 3.7.3",
    shown="async/work_and_wait p2p/isend_irecv wrong/missing_wait/handle_thrown_away",
)
def wait(_: Run, state: RankState, call: Call) -> list[Effect]:
    """The rank waits for the work of its handles, in order."""
    assert isinstance(call.operation, Waiting)
    works = tuple(
        work
        for name in call.operation.handles(call.entry)
        for work in find_work(name, state.handles, lambda work: work.waited)
    )
    again = list(_second_waits(works))
    symptoms = [name_second_wait(state, call, work) for work in again]
    return [*symptoms, Await(works, len(again))]


# Why a second wait is a mistake, although torch's documentation does not name it.
#
#     before the loop      w = isend(x, 1)
#     in each round        w.wait()                the second round waits again
#
# A request that is complete is inactive, and a wait for one returns at once (MPI 4.1, 3.7.3). Gloo
# waits by the buffer and not by the request: the second wait blocks until another message has left
# that buffer, which is never, and then raises its timeout. Collectives keep their result, so that
# theirs may be waited for again. Measured on torch 2.13 by scenarios/wrong/double_wait.
@rule(
    "The work of a message is waited for once. A second wait returns at once, or never: on Gloo it "
    "blocks until the timeout. The work of a collective may be waited for again.",
    source="measured on torch 2.13; MPI 4.1, 3.7.3: a completed request is inactive",
    shown="wrong/double_wait/wait_inside_the_loop",
)
def is_used_up(work: Any, waited: Any) -> Any:
    """Whether a wait for a call's work comes too late: for one rank, or an array of them.

    `work` has the operation that started it.
    """
    return waited & isinstance(work, PointToPoint)


def _second_waits(works: Sequence[Work]) -> Iterator[Work]:
    seen: set[int] = set()
    for work in works:
        if is_used_up(work.call.operation, work.waited or work.number in seen):
            yield work
        seen.add(work.number)


@rule(
    "From its start until the wait, a tensor belongs to the work. Meanwhile it may be read if the "
    "work only reads it, and not be touched at all if the work writes it.",
    source="torch.distributed.isend: modifying the tensor is undefined; MPI 4.1, 3.7.2",
    shown="wrong/buffer_race/changed_while_sent wrong/buffer_race/read_before_wait",
)
def clash(*writes: bool) -> bool:
    """Whether uses of the same elements, each a read or a write, may not be under way at once.

    >>> clash(False, False), clash(True, False)
    (False, True)
    """
    return any(writes)


@rule(
    "A rank gives up on a call that takes longer than its timeout, or its group's. A rank that "
    "comes when others have given up finds them gone.",
    source="torch.distributed.init_process_group and new_group, `timeout`",
    shown="faults/slower_than_the_timeout faults/timeout_of_a_group faults/timeout_of_one_call",
)
def exceed(works: Sequence[Work]) -> Raise | None:
    """Return what a rank raises that waited too long for one of these, or whose peer had.

    Or that waits for work which was refused after its call had returned.
    """
    for work in works:
        if work.refusal is not None:
            failure = Failure(kinds=(work.refusal.kind,), message=work.refusal.message)
            return Raise(failure, work.start_s)
        if work.posts and isinstance(work.posts[0], FunctionCall):
            continue  # of calls of functions the rules are their own
        timeout_s = timeout_of(work.call)
        for post in work.posts:
            if isinstance(post, CreationPost):
                if post.failed_s is not None:
                    kinds = WAITING_KINDS if post.gave_up else LOST_KINDS
                    return Raise(Failure(kinds=kinds), post.failed_s)
            elif (post.done_s or 0.0) - post.time_s > timeout_s:
                return Raise(Failure(kinds=WAITING_KINDS), post.time_s + timeout_s)
            elif post.time_s - _find_first_s(post) > timeout_s:
                return Raise(Failure(kinds=LOST_KINDS), post.time_s)
    return None


def timeout_of(call: Call) -> float:
    """Return the seconds after which a backend gives up on a call: its own, or its group's."""
    given = call.entry.arguments.get("timeout")
    return call.entry.group.timeout_s if given is None else float(given)


def _find_first_s(post: Post) -> float:
    """Return when the first of the posts came that this one met."""
    if isinstance(post, CollectivePost):
        return post.match.first_s
    if isinstance(post, MessagePost) and post.partner is not None:
        return post.partner.time_s
    return post.time_s


@rule(
    "A call that nothing completes never returns. Where a rank that it waits for is gone, it "
    "raises; and so it does where the scenario says that it raises.",
    source="torch.distributed, Debugging; MPI 4.1, 9.3 leaves failures to the implementation",
    shown="faults/killed_peer faults/survivors_go_on reported/early_return",
)
def give_up(run: Run) -> list[tuple[RankState, list[Effect]]]:
    """Nothing moves: return which ranks raise, because they wait for the gone or are to raise."""
    gone = {state.rank for state in run.ranks if state.state in {"raised", "died"}}
    stuck = [state for state in run.ranks if state.state == "blocked"]
    orphans = _orphans(run, stuck, gone) if gone else set()
    raising = [(state, _kinds(run, state, orphans)) for state in stuck]
    return [(state, _abandon(state, kinds)) for state, kinds in raising if kinds]


def _orphans(run: Run, stuck: Sequence[RankState], gone: set[int]) -> set[int]:
    """Return the stuck ranks that wait for a rank that is gone."""
    return {
        post.rank
        for need in needs_of(run, stuck)
        if not gone.isdisjoint(need.peers)
        for post in need.waiters
    }


def _kinds(run: Run, state: RankState, orphans: set[int]) -> tuple[str, ...]:
    """Return what a stuck call may raise; empty: it does not."""
    call = state.call
    assert call is not None
    refused = _find_late_refusal(state, call)
    for stated in (expect(state, call.step.expect), expect(state, run.plan.scenario.expect.at_end)):
        kinds = tuple(kind for kind in stated if kind in STUCK_KINDS or kind in refused)
        if kinds:
            return kinds
    return (*WAITING_KINDS, *refused) if state.rank in orphans else ()


def _find_late_refusal(state: RankState, call: Call) -> tuple[str, ...]:
    """Return what else a stuck call may raise: torch looks the group up to log its failure.

    `torch.distributed.c10d_logger` does so for every call but a wait; a destroyed group is unknown.
    """
    unknown = call.entry.group.name in state.process.destroyed
    return ("invalid_argument",) if unknown and not isinstance(call.operation, Waiting) else ()


def _abandon(state: RankState, kinds: tuple[str, ...]) -> list[Effect]:
    """Let a stuck call raise: what its works were to write is undefined from then on."""
    call = state.call
    assert call is not None
    calls = [work.call for work in state.waiting]
    spoilt = {
        name: Undefined(cause=f"a failed `{each.label}`", origin=each.step.index)
        for each in calls
        for name in each.targets
    }
    seconds = timeout_of(calls[-1] if calls else call) if "timeout" in kinds else 0.0
    raises = Raise(Failure(kinds=kinds), state.clock_s + seconds, dict(sorted(spoilt.items())))
    return [Abandon(state.waiting), Open(frozenset({"error"})), raises]
