"""Collectives: which calls match, who may go on when, what they must agree on, what is left behind.

The tale of one call. A member *enters* its group's next collective. It may pass once nothing that
it *needs* is missing. What the members entered with must *agree*; then each of them is *left* what
the operation's own reference computes from all entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.model.tolerance import common_slack, slack_of
from torch_scenarios.operations.base import Collective, Disagreement, Entry
from torch_scenarios.reference.effects import Begin, Effect, Keep, Leave, Outcome, Pass, Spoil
from torch_scenarios.reference.matching import CollectiveMatch, CollectivePost
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.words import name_disagreement
from torch_scenarios.reference.state import ALL_OUTCOMES, Ledger, RankState, Run, arrays_of, frozen

#: kinds of arguments that hold what a collective moves
TENSORS = frozenset({"tensor", "tensors", "tensor_lists", "objects", "object"})

#: copies of a collective's arguments that there may be at once: wide ones, results, their bounds
COPIES = 3


@rule(
    "A collective concerns the members of its group alone. On any other rank the call does nothing "
    "and returns None, with a warning.",
    source="torch.distributed.distributed_c10d, `_rank_not_in_group`",
    shown="groups/groups_even",
)
def concerns(group_rank: Any) -> Any:
    """Whether ranks take part, by their rank in the group: one integer, or an array.

    >>> concerns(-1), concerns(np.array([0, -1, 1]))
    (False, array([ True, False,  True]))
    """
    return group_rank >= 0


@rule(
    "Collectives match by their place: the n-th that a rank calls on a group is the n-th of every "
    "member, whichever steps of the program these are.",
    source="MPI 4.1, 6.14; torch.distributed, Collective functions",
    shown="collectives/order_of_calls_decides wrong/call_mismatch/swapped_order",
)
def enter(_: Run, __: RankState, ___: Call) -> list[Effect]:
    """A call of a member starts work, which is its part in the group's next collective."""
    return [Begin()]


@rule(
    "A collective is complete once every member has entered it.",
    source="MPI 4.1, 6.14; torch.distributed, Collective functions",
    shown="barrier/nobody_passes_early wrong/missing_participant/one_round_less",
)
def is_whole(entered: Any, size: Any) -> Any:
    """Whether all members of groups of this size have entered: integers, or arrays of them.

    >>> is_whole(2, 3), is_whole(np.array([2, 3]), np.array([3, 3]))
    (False, array([False,  True]))
    """
    return entered == size


# Why a member may pass before the others, although hardly any implementation lets it.
#
#     rank 0   broadcast x from 0     send y to 1
#     rank 1   recv y from 0          broadcast x from 0
#
# If a broadcast waited for all, rank 0 would wait for rank 1 in the broadcast, and rank 1 for rank
# 0 in the receive. Gloo lets the root go on as soon as its data is out; another implementation need
# not. Both are right (MPI 4.1, 6.14 leaves it open whether a collective synchronises), so that the
# program is wrong: it relies on what no one promises.
#
# To find that, the program is run under both readings. Here is the loose one, what no correct
# implementation can forbid: who needs nothing that is missing may go on. The strict one is
# `Semantics.strict`, and needs no rule: everyone waits for all. Where the two end differently, the
# prediction is the loose one, and what the strict one shows is a hazard.
#
# `needs` must be exact in one direction alone. One member too many, and a program that completes
# everywhere is called a deadlock; one too few, and a deadlock is missed. So it asks the operation,
# and the only thing that it adds is what holds of all of them: what has no elements is carried by
# no message.
@rule(
    "A member may go on before the others once nothing that it needs is missing: the source of a "
    "broadcast needs no other rank, a leaf needs the source, an all_reduce needs everyone. Whether "
    "an implementation lets it is left open, so that no program may rely on it.",
    source="MPI 4.1, 6.14: a collective may, or may not, synchronise",
    shown="collectives/two_broadcasts wrong/missing_participant/broadcast_without_its_source",
)
def needs(operation: Collective, entry: Entry) -> frozenset[int]:
    """Return the group ranks without which no implementation could let a member pass.

    A rank that has nothing to contribute and nothing to get waits for no other: tensors without
    elements are carried by no message.
    """
    if moves_nothing(operation, entry):
        return _find_loners(entry.group_rank)
    return operation.needs(entry)


@cache
def _find_loners(group_rank: int) -> frozenset[int]:
    return frozenset({group_rank})


def moves_nothing(operation: Collective, entry: Entry) -> bool:
    """Whether a member has nothing to contribute and nothing to get: no tensor has an element."""
    tensors = False
    for name in _carry(operation):
        value = entry.arguments.get(name)
        parts = (value,) if value.__class__ is np.ndarray else arrays_of(value)
        for part in parts:
            if part.__class__ is not np.ndarray or part.size:
                return False
            tensors = True
    return tensors


@cache
def _carry(operation: Collective) -> tuple[str, ...]:
    """Return the arguments that hold what an operation moves."""
    return tuple(param.name for param in operation.params if param.kind in TENSORS)


@rule(
    "Members must call with arguments that fit: the same root, the same reduction, tensors of the "
    "same dtype and of fitting shapes. Where they do not, nothing is promised: the call may hang, "
    "raise, crash, or leave anything behind.",
    source="MPI 4.1, 6.1 to 6.9, each call's requirements; torch.distributed, Debugging",
    shown="wrong/root_mismatch/two_sources wrong/op_mismatch/sum_and_avg "
    "wrong/dtype_mismatch/float_meets_integer wrong/shape_mismatch/last_batch_is_smaller",
)
def disagree(operation: Collective, entries: Sequence[Entry]) -> list[Disagreement]:
    """Return what members disagree on, in group order; of one alone, nothing."""
    return operation.disagreements(entries) if len(entries) > 1 else []


def judge(
    match: CollectiveMatch,
    members: Mapping[int, CollectivePost],
    opened: frozenset[str] = ALL_OUTCOMES,
) -> list[Spoil]:
    """Return what members disagree on: it spoils the result, and `opened` may happen."""
    if len(members) < 2:
        return []
    operation = members[min(members)].operation
    found = disagree(operation, [members[at].entry for at in sorted(members)])
    everyone = tuple(members.values()) if found else ()
    return [
        Spoil(match, everyone, name_disagreement(match, operation, members, each), opened)
        for each in found
    ]


def judge_the_present(run: Run) -> list[Spoil]:
    """Return what those disagree on who entered a collective that not all of them entered.

    Where some went on before others came, what these disagree on is a part of what all do.

    No disagreement brings the part of a member who never comes: only a root that is one for itself
    may do without it, and nothing completes where a rank has ended.
    """
    ended = any(state.state in {"died", "raised"} for state in run.ranks)
    found: list[Spoil] = []
    for match in run.matches.all():
        if len(match.kinds) != 1 or len(match.joined) == match.group.size:
            continue
        operation = match.joined[min(match.joined)].operation
        lacking = ended or operation.rooted is None
        opened = ALL_OUTCOMES - {"completes"} if lacking else ALL_OUTCOMES
        found += judge(match, match.joined, frozenset() if match.spoiled else opened)
    return found


@rule(
    "What a member holds afterwards is the operation's own: what it writes to, computed from the "
    "entries of all members in the order of their group ranks.",
    source="MPI 4.1, 6; torch.distributed, each function",
    shown="collectives/all_reduce_sum collectives/all_gather collectives/reduce_scatter",
)
def leave(
    operation: Collective, entries: Sequence[Entry]
) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """Return what each member holds afterwards by argument, and its bounds, from all entries."""
    return operation.reference(entries), slack_of(operation, list(entries))


def leave_to_all(
    operation: Collective, arguments: Mapping[str, Any], size: int
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return what every member holds, and the bounds, where all hold the same; None elsewhere.

    Tensors are the stacks of all members' `[size, *shape]`.
    """
    found = operation.common(arguments)
    return None if found is None else (found, common_slack(operation, arguments, size))


@rule(
    "A result is computed once all members are there. A member that passed before them got its own "
    "earlier, from those that it needs, and what it gave is what it gave then.",
    source="MPI 4.1, 3.7.2: a buffer belongs to the call until this completes",
    shown="collectives/broadcast collectives/only_one_has_data",
)
def settle(
    match: CollectiveMatch,
    member: CollectivePost,
    entered: Mapping[int, CollectivePost],
    ledger: Ledger,
) -> list[Effect]:
    """Give `member` what its operation leaves there; `entered` are those who came so far."""
    whole = is_whole(len(entered), match.group.size)
    if whole and match.settled:
        return []
    operation, here = member.operation, match.group.group_rank(member.rank)
    if not whole and (not stores(member) or moves_nothing(operation, member.entry)):
        return [Keep(member)]
    involved = (
        entered
        if whole
        else {at: entered[at] for at in sorted({*needs(operation, member.entry), here})}
    )
    spoils = judge(match, involved)
    cause = _cause_of(match, member, involved, spoils)
    receivers = entered if whole else {here: member}
    if cause is not None:
        outcomes = [(other, spoil(other, cause)) for other in receivers.values()]
    else:
        outcomes = _results(match, member, involved, receivers, ledger)
    left: list[Effect] = [*spoils, Leave(outcomes, match if whole else None)]
    return left if whole else [*left, Keep(member)]


def _cause_of(
    match: CollectiveMatch,
    member: CollectivePost,
    involved: Mapping[int, CollectivePost],
    spoils: Sequence[Spoil],
) -> Undefined | None:
    """Return why a result is undefined: what some member gave is, or they disagree; or None."""
    taint = next((other.tainted for other in involved.values() if other.tainted), None)
    spoiled = match.spoiled or next((each.symptom.name for each in spoils), None)
    if taint is not None or spoiled is None:
        return taint
    return Undefined(cause=f"`{member.call.label}` with a {spoiled}", diagnosis=spoiled)


def _results(
    match: CollectiveMatch,
    member: CollectivePost,
    involved: Mapping[int, CollectivePost],
    receivers: Mapping[int, CollectivePost],
    ledger: Ledger,
) -> list[tuple[CollectivePost, Outcome]]:
    """Return what is left on those who have not passed, where nothing spoils it.

    What depends on the root alone is computed once for all that pass before all are there.
    """
    operation, key = member.operation, None
    if len(involved) < match.group.size and operation.from_root:
        root = operation.root(member.entry)
        key = None if root == member.entry.group_rank else (operation.name, root)
    results, bounds = match.compute_once(key, partial(_leave, match, member, involved, ledger))
    index = member.call.step.index
    return [
        (
            other,
            [
                (name, _copy_result(value, index), bounds[at].get(name) if bounds else None)
                for name, value in results[at].items()
            ],
        )
        for at, other in receivers.items()
        if other.done_s is None
    ]


def _leave(
    match: CollectiveMatch,
    member: CollectivePost,
    involved: Mapping[int, CollectivePost],
    ledger: Ledger,
) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """Compute what is left; one whose part is not needed counts as having entered like `member`."""
    entries = [
        involved[at].entry if at in involved else replace(member.entry, rank=rank)
        for at, rank in enumerate(match.group.ranks)
    ]
    values = (value for entry in entries for value in entry.arguments.values())
    ledger.room(values, member.call.step.mark, copies=COPIES)
    return leave(member.operation, entries)


def _copy_result(value: Any, index: int) -> Any:
    """Return what an operation leaves, as a copy; what is undefined names the step."""
    return replace(value, origin=index) if isinstance(value, Undefined) else frozen(value)


def spoil(member: CollectivePost, cause: Undefined) -> Outcome:
    """Return an outcome that leaves all undefined that the operation stores into."""
    return [(name, cause, None) for name in stores(member)]


def stores(member: CollectivePost) -> list[str]:
    """Return the arguments that the operation stores into on this rank."""
    operation, entry = member.operation, member.call.entry
    return [
        param.name
        for param in operation.params
        if operation.writes(param, entry) and entry.arguments.get(param.name) is not None
    ]


@rule(
    "All members of a complete collective may go on once the last of them has entered.",
    source="MPI 4.1, 6.14; torch.distributed.barrier",
    shown="barrier/nobody_passes_early",
)
def complete(entered: Mapping[int, CollectivePost]) -> list[Effect]:
    """All members are there: let those pass who have not passed before."""
    last_s = max(other.time_s for other in entered.values())
    return [Pass(each, last_s) for each in entered.values() if each.done_s is None]


def pass_early(member: CollectivePost, entered: Mapping[int, CollectivePost]) -> list[Effect]:
    """All that a member needs are there: let it pass, if it has not."""
    needed = needs(member.operation, member.entry)
    latest_s = max([member.time_s, *(entered[at].time_s for at in needed)])
    return [Pass(member, latest_s)] if member.done_s is None else []
