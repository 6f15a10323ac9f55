"""Replicas that are not equal when the training begins, or are parts of a model.

Ranks that reduce the gradients of a parameter and begin with other values of it never compute one
model: no seed, no broadcast, a state that one rank alone loads. Where some of them began alike and
others did not, or the parameter is an expert's, they hold parts of a model, and the reduction goes
over too many ranks. A copy that is made before DDP sends its weights (an average, a teacher) is a
copy of what the rank had drawn, on all ranks but the first.

A teacher that no rank ever writes may be meant to be another one on each rank: a warning.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import prod

from torch_scenarios.record.values.format.event import (
    DataParallelWrapper,
    ModuleLoad,
    OptimizerLoad,
)
from torch_scenarios.record.values.format.record import (
    CarryingCall,
    Forward,
    OptimizerStep,
    ValueRecord,
)
from torch_scenarios.record.values.invariants.finding import (
    Cause,
    Records,
    ValueFinding,
    list_names,
    part_ranks,
    tell_line,
)
from torch_scenarios.record.values.roles import (
    Ranks,
    ReplicaGroup,
    Roles,
    find_experts,
    find_first_steps,
    find_first_use,
    find_stepped_with,
)
from torch_scenarios.verdict.finding import ranks_text


def tell_beginning(records: Records, group: ReplicaGroup) -> ValueFinding:
    """Return that weights differ before the first step, though their gradients are reduced."""
    rank = group.ranks[0]
    record = records[rank]
    names = [each.name for each in record.parameters.values() if each.name in group.names]
    about = record.parameters[record.names[names[0]]]
    place = about.made if about.made >= 0 else about.place
    if loaded := find_lone_load(records, group.ranks, 0):
        rank, place = loaded
    elif mixed := _mixes_parts(records, group):
        return mixed
    elif copied := _tell_own_copies(records, group, names):
        return copied
    who = f": {ranks_text((rank,))} loads a state that the others do not load" if loaded else ""
    return ValueFinding(
        code="replicas_differ",
        message=f"{list_names(names)} {'are' if len(names) > 1 else 'is'} not equal on "
        f"{ranks_text(group.ranks)} when the training begins, and {group.because} makes "
        f"{'them replicas' if len(names) > 1 else 'it a replica'}{who}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        hint="give all ranks one seed before the model is made, or broadcast its weights from one "
        "rank: `for p in model.parameters(): dist.broadcast(p.data, 0)`",
        turn=0,
        name=names[0],
    )


def tell_own_weights(records: Records, roles: Roles) -> Iterator[str]:
    """Yield weights that ranks begin otherwise and step with replicas, and that no call carries.

    It is not a finding: each rank may train its own head.
    """
    experts = find_experts(records)
    for group in roles.replicas:
        own = [records[rank] for rank in group.ranks if rank in records]
        if not group.gradients or group.averages or len(own) < len(group.ranks) or experts:
            continue
        if any(set(group.ranks) & set(ranks) for ranks in roles.model):
            continue
        known = {name for each in roles.replicas for name in each.names}
        begun = [find_first_use(each) for each in own]
        stepped = [find_stepped_with(each, group.names) - known for each in own]
        carried = {
            record.parameters[number].name
            for record in own
            for call in record.calls
            for tensor in call.tensors
            for number in tensor.parameters
        }
        names = [
            each.name
            for each in own[0].parameters.values()
            if each.name in set.intersection(*stepped) - carried
            and not each.placements
            and len({tuple(r.parameters[r.names[each.name]].shape) for r in own}) == 1
            and len({one.get(each.name) for one in begun}) > 1
        ]
        if names:
            step = next(find_first_steps(own[0]))
            they, are = ("they", "are") if len(names) > 1 else ("it", "is")
            yield (
                f"{list_names(names)} {are} not equal on {ranks_text(group.ranks)} from the "
                f"beginning, the optimizer steps {'them' if len(names) > 1 else 'it'}"
                f"{tell_line(own[0], step.place)} together with replicas, and no call carries "
                f"{'their gradients' if len(names) > 1 else 'its gradient'}: where {they} {are} "
                "to be one on all ranks, wrap the module together with the others"
            )
            return


def find_equalizing_line(record: ValueRecord, names: Container[str]) -> int:
    """Return the line of DDP or of a collective that makes weights of these names equal, or -1.

    Only what comes before the first forward pass counts.
    """
    used = record.forwards[0].at if record.forwards else 0
    found = [(each.at, each.place) for each in record.of(DataParallelWrapper) if each.at < used]
    found += [
        (call.at, call.place)
        for call in record.calls
        if call.at < used
        and any(
            tensor.carries == "weight"
            and any(record.parameters[n].name in names for n in tensor.parameters)
            for tensor in call.tensors
        )
    ]
    return max(found)[1] if found else -1


def find_stepped_copies(
    records: Records, ranks: Ranks, names: Container[str]
) -> OptimizerStep | None:
    """Return the first step of an optimizer, where it steps copies that ranks do not begin alike.

    Such as copies in single precision, or one flat copy: they have as many elements as the weights
    of these names, and the script writes them back after the step.
    """
    record = records[ranks[0]]
    step = next(iter(record.steps), None)
    if step is None or not step.gradients:
        return None
    copies = [record.parameters[n] for n in step.gradients if n in record.parameters]
    weights = [each for each in record.parameters.values() if each.name in names]
    size = sum(prod(each.shape) for each in copies)
    if any(each.name in names for each in copies) or size != sum(prod(e.shape) for e in weights):
        return None
    firsts = {
        tuple(own.first for n in step.gradients if (own := records[r].parameters.get(n)))
        for r in ranks
    }
    return step if len(firsts) > 1 else None


def _tell_own_copies(
    records: Records, group: ReplicaGroup, names: Sequence[str]
) -> ValueFinding | None:
    """Return a finding where an optimizer steps copies made before the weights were made equal.

    The ranks reduce the gradients of the copies, and call a model whose weights are equal.
    """
    record = records[group.ranks[0]]
    root = record.forwards[0].root if record.forwards else -1
    used = {each.name for each in record.parameters.values() if each.root == root}
    begun = [find_first_use(records[rank]) for rank in group.ranks]
    alike = {n for n in used - group.names if len({each.get(n) for each in begun}) == 1}
    step = find_stepped_copies(records, group.ranks, alike)
    if step is None or alike != used:
        return None
    line = find_equalizing_line(record, used)
    made = f"a call{tell_line(record, line)}" if line >= 0 else "something"
    return ValueFinding(
        code="replicas_differ",
        message=f"{list_names(names)} {'are' if len(names) > 1 else 'is'} not equal on "
        f"{ranks_text(group.ranks)} when the training begins, and the optimizer steps them"
        f"{tell_line(record, step.place)} in place of the weights of the model, which are equal: "
        f"these are copies that were made before {made} made the weights equal",
        ranks=group.ranks,
        rank=group.ranks[0],
        place=line if line >= 0 else step.place,
        hint=COPY_LATER,
        cause=Cause.EARLY_COPIES,
        turn=0,
        name=names[0],
    )


#: what to do about copies for an optimizer that are older than what makes weights equal
COPY_LATER = (
    "make the copies that the optimizer steps after the weights of the ranks are made equal (by "
    "DistributedDataParallel or a broadcast), not before"
)


def find_early_copies(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield copies of a model (averages, teachers) that are older than DDP's broadcast.

    On the rank that sends, a copy is what all ranks train; on the others it is what they had made.
    """
    del roles
    for source, record in records.items():
        for event in record.of(DataParallelWrapper):
            ranks, own = event.ranks, event.parameters
            if source != min(ranks) or any(rank not in records for rank in ranks):
                continue
            trained = {record.parameters[n].first: record.parameters[n] for n in own}
            names = [
                each.name
                for number, each in record.parameters.items()
                if number not in own
                and not each.constant
                and (like := trained.get(each.first)) is not None
                and each.name.endswith(f".{like.name}")
                and like.shape == each.shape
            ]
            late = {rank: _firsts(records[rank], names) for rank in ranks}
            apart = [r for r in ranks if late[r] and late[r] != late[source]]
            if names and apart and all(len(each) == len(names) for each in late.values()):
                yield _tell_copy(records, names, ranks, apart, event.place)
                return


def _firsts(record: ValueRecord, names: list[str]) -> list[str]:
    known = {each.name: each.first for each in record.parameters.values()}
    return [known[name] for name in names if name in known]


def _tell_copy(
    records: Records, names: list[str], ranks: Sequence[int], apart: list[int], place: int
) -> ValueFinding:
    root = {each.root for each in records[apart[0]].parameters.values() if each.name in set(names)}
    called = any(each.root in root for each in records[apart[0]].forwards)
    followed = _are_written(records[apart[0]], names)
    return ValueFinding(
        code="replicas_differ",
        message=f"{list_names(names)} on {ranks_text(apart)} "
        f"{'are copies' if len(names) > 1 else 'is a copy'} of what this rank had before "
        f"DistributedDataParallel sent the weights of rank {min(ranks)}: it is not a copy of the "
        "model that is trained",
        ranks=tuple(ranks),
        rank=min(ranks),
        place=place,
        hint="make the copy (an average, a teacher) after this line, or give all ranks one seed "
        "before the model is made",
        turn=0,
        error=called and followed,
        name=names[0],
    )


def _are_written(record: ValueRecord, names: list[str]) -> bool:
    """Whether something writes into parameters while others are trained, as an average does.

    What nothing writes may be a teacher that each rank is to have for itself.
    """
    numbers = {record.names[name] for name in names}
    events: list[Forward | OptimizerStep] = [*record.forwards, *record.steps]
    return any(numbers & {*each.changed} for each in events)


def find_lone_load(
    records: Records, ranks: Ranks, turn: int, kind: type[ModuleLoad | OptimizerLoad] = ModuleLoad
) -> tuple[int, int] | None:
    """Return a rank and the line at which it loads a state before a turn, and others do not.

    Of a module, or of an optimizer.
    """
    lines = {
        rank: [e.place for e in records[rank].of(kind) if e.turn <= turn]
        for rank in ranks
        if rank in records
    }
    least = min(map(len, lines.values()), default=0)
    return next(((r, own[-1]) for r, own in lines.items() if len(own) > least), None)


def _mixes_parts(records: Records, group: ReplicaGroup) -> ValueFinding | None:
    """Return that a collective sums the gradients of different parts of a model.

    Some of its ranks hold one and the same part: these are the replicas.
    """
    named = [*_exact_reductions(records, group)]
    experts = find_experts(records)
    for rank, name, call in named:
        alike = part_ranks(
            {r: records[r].parameters[records[r].names[name]].first for r in call.ranks}
        )
        known = name in experts or {len(each) for each in alike} != {1}
        if len(alike) > 1 and (known or _have_twins(records, call.ranks, name)):
            parts = "; ".join(ranks_text(each) for each in alike)
            return ValueFinding(
                code="replicas_differ",
                message=f"the gradients of different parts of `{name}` are reduced together: "
                f"{ranks_text(call.ranks)} hold {len(alike)} parts of it ({parts})",
                ranks=call.ranks,
                rank=rank,
                place=call.place,
                hint="reduce over the ranks that hold the same part: the data-parallel group in "
                "place of all ranks",
                turn=call.turn,
                name=name,
            )
    return None


def _have_twins(records: Records, ranks: Ranks, name: str) -> bool:
    """Whether each of some ranks holds what a rank outside of them holds: a part of a model."""
    firsts = {
        rank: each.parameters[each.names[name]].first
        for rank, each in records.items()
        if name in each.names
    }
    others = {first for rank, first in firsts.items() if rank not in ranks}
    return bool(others) and all(firsts.get(rank) in others for rank in ranks)


def _exact_reductions(
    records: Records, group: ReplicaGroup
) -> Iterator[tuple[int, str, CarryingCall]]:
    """Yield the calls that reduce gradients of a group for sure: in place, or all in one copy."""
    for rank in group.ranks:
        for call in records[rank].calls:
            for each in call.tensors if call.ranks == group.ranks else ():
                for number in each.parameters if each.exact or each.joined else ():
                    name = records[rank].parameters[number].name
                    if each.carries == "gradient" and name in group.names:
                        yield rank, name, call
