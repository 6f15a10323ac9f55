"""Creations of groups: who takes part in a `new_group`, who waits for which ranks, who gives up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torch_scenarios.errors import Clause
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import Group, GroupCreation
from torch_scenarios.reference.effects import Create, Deny, Effect, Late, Pass, Raise
from torch_scenarios.reference.matching import CREATION_WORK, MEMBER_WORK, CreationPost
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.waiting import timeout_of
from torch_scenarios.reference.state import RankState, Run
from torch_scenarios.reference.symptoms import Symptom


def price(group: Group, ranks: int = 1) -> int:
    """Return the units of work of the part that some ranks have in a creation."""
    return (CREATION_WORK + MEMBER_WORK * group.size) * ranks


@rule(
    "Torch refuses a group that has a rank twice, or one outside the world. It does so on every "
    "rank, before the first step.",
    source="torch.distributed.new_group; torch.distributed.device_mesh.init_device_mesh",
    shown="groups/part_of_nobody",
)
def forbid(plan: Plan) -> tuple[str, Symptom, Failure] | None:
    """Return the first group that torch refuses: its label, and what every rank raises; or None."""
    for creation in plan.creations:
        if creation.refused is not None:
            label = f"{creation.kind} {creation.spec.name}"
            symptom = Symptom(
                name="invalid_argument",
                clauses=(Clause(label, creation.spec.mark, f": {creation.refused}"),),
                ranks=tuple(range(plan.world_size)),
                kind="invalid_argument",
            )
            return label, symptom, Failure(kinds=("invalid_argument",), message=creation.refused)
    return None


# Why every rank has to call `new_group`, and why a rank that does not hangs far from there.
#
#     rank 0   new_group [0, 1]                     new_group [0, 2]     barrier in the second
#     rank 1   new_group [0, 1]
#     rank 2                                        new_group [0, 2]     barrier in the second
#
# Nothing of a call names its group but a counter: the n-th call of a process gets the n-th name,
# and members look for each other in the store under that name
# (`torch.distributed.distributed_c10d._process_group_name`). Rank 2 left out the first call, so
# that its second group has the first name. It waits for rank 0 under one name, and rank 0 for it
# under another. So creations are matched like collectives, by position; the group that a call asks
# for is what they must agree on.
@rule(
    "Every rank of the world calls `new_group`, members or not, and in the same order. With "
    "`use_local_synchronization` only the members do, and calls that name the same members meet.",
    source="torch.distributed.new_group",
    shown="groups/created_on_the_way groups/local_groups wrong/group_creation/only_the_members",
)
def create(
    run: Run, state: RankState, call: Call, operation: GroupCreation, group: Group
) -> list[Effect]:
    """A rank enters the next creation of a series.

    It raises where a backend counts names by the groups in use, and this name is in use.
    """
    semantics, local = run.semantics.on(group), operation.local(call.entry)
    series = run.creations.series(group, state.process, semantics.counts, local=local)
    inside, by_names = state.rank in group.ranks, semantics.counts == "groups"
    if by_names and inside and run.creations.uses(state.rank, series) in state.process.alive:
        message = "the rank is in a group that has the same name"
        return [Deny(), Raise(Failure(kinds=("invalid_argument",), message=message))]
    # who is no member of a group that only its members create returns at once
    splits = semantics.splits and (not local or inside)
    return [Create(group, series, splits=splits, reused=by_names and local)]


@rule(
    "A rank that is not a member goes on at once. A member waits for every other member. Where "
    "groups are split off the world, as NCCL may do, every rank waits for all.",
    source="torch.distributed.new_group; ncclCommSplit",
    shown="groups/overlapping wrong/group_creation/one_skips",
)
def meet(run: Run, creating: CreationPost) -> list[tuple[CreationPost, list[CreationPost]]]:
    """Return who passes now that a rank has come, each with the ranks that it waited for."""
    semantics, creations = run.semantics.on(creating.group), run.creations
    if semantics.splits:
        together = list(creations.find_splitting(creating).values())
        whole = creating.nth is None or len(together) == len(run.ranks)
        return [(other, together) for other in together] if whole else []
    if creating.rank not in creating.group.ranks or (semantics.found and creating.ordinal):
        return [(creating, [creating])]
    if semantics.disputed and creations.is_disputed(creating.series, creating.ordinal):
        return [
            (other, creations.present(other))
            for other in run.creating.values()
            if creations.is_disputed(other.series, other.ordinal)
        ]
    alike = creations.find_agreeing(creating)
    met = alike if len(alike) == len(creating.group.ranks) else []
    return [(other, met) for other in met if other.done_s is None]


def complete(run: Run, creating: CreationPost) -> list[Effect]:
    """Let those pass who wait for no other any more; some of them raise who waited too long."""
    passing = meet(run, creating)
    in_turn = not run.semantics.on(creating.group).splits
    late = [
        each
        for met in {id(met): met for _, met in passing}.values()
        for each in lose(met, [timeout_of(member.call) for member in met], in_turn=in_turn)
    ]
    return [*late, *(Pass(other, max(each.time_s for each in met)) for other, met in passing)]


@rule(
    "A member waits for the others one by one, in the order of the group, each time for as long as "
    "its timeout. Once one has given up, all who come later find it gone.",
    source="Gloo, `Context::connectFullMesh`, gloo/rendezvous/context.cc; measured on torch 2.13",
    shown="faults/timeout_of_a_group",
)
def lose(met: Sequence[CreationPost], timeouts_s: Sequence[float], *, in_turn: bool) -> list[Late]:
    """Return who raises of those who met, where one of them gave up on another.

    `timeouts_s` are theirs, in seconds. `in_turn`: a member looks each address up in the store, one
    after the other. So one may come later than a timeout after the first, if no member had to wait
    that long for it alone. Once one has given up, who comes later finds an address at which no
    process listens.
    """
    arrivals = np.array([each.time_s for each in met])
    if arrivals.max() - arrivals.min() <= min(timeouts_s):
        return []
    order = np.argsort([each.group.group_rank(each.rank) for each in met], kind="stable")
    arrivals = arrivals[order]
    before = np.full(len(met), -np.inf)
    if in_turn:
        before[1:] = np.maximum.accumulate(arrivals)[:-1]
    gave_up_s: dict[int, float] = {}
    for place, index in enumerate(order.tolist()):
        began = np.maximum(before, arrivals[place])
        late = np.flatnonzero(arrivals > began + timeouts_s[index])
        if late.size:
            gave_up_s[index] = float(began[late[0]] + timeouts_s[index])
    last_s = float(arrivals.max())
    return [
        Late(creating, gave_up_s.get(index, last_s), index in gave_up_s)
        for index, creating in enumerate(met if gave_up_s else ())
    ]
