"""What must agree between ranks, held against what they wrote: one function an invariant.

Each takes the records and the roles of their groups, and yields what is wrong. What rests on
a role that is not known is silent. Of what follows from one another the first alone is kept.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any

from msgspec import Struct

from torch_scenarios.record.values.format import (
    CarryingCall,
    LoadedBatch,
    OptimizerStep,
    ValueRecord,
)
from torch_scenarios.record.values.roles import (
    EQUALIZING,
    Ranks,
    ReplicaGroup,
    Roles,
    find_experts,
    find_scattering_groups,
    find_stages,
)
from torch_scenarios.verdict.finding import ranks_text

Records = Mapping[int, ValueRecord]

#: names that one message lists
MOST_NAMES = 3
#: relative difference of two norms that rounding does not make
NORMS_APART = 1e-5
#: rows from which those of two ranks are compared
MOST_FEW = 8
#: steps and rows from which a model that is called with the same rows on all ranks is trained, and
#: not only tried
MOST_TRIALS, MOST_TRIED = 3, 64
#: part of the rows that two ranks may share where each has a row once alone
FEW_PART = 0.1
#: part of the rows of an epoch from which ranks are said to read the same
SAME_PART = 0.5


class ValueFinding(Struct, frozen=True, kw_only=True):
    """One invariant that does not hold: what is wrong, on which ranks, at which line, what to do.

    `rank` and `place` name the line, `frames` where the record has none for it; `turn` the step of
    training; `error` whether the program is wrong, or should be looked at.
    """

    code: str
    message: str
    ranks: Ranks
    rank: int
    place: int
    hint: str
    turn: int = 0
    error: bool = True
    name: str = ""
    frames: tuple[tuple[str, int, str], ...] = ()


class Judgement(Struct, frozen=True, kw_only=True):
    """What the witness says: its findings, the invariants that were judged, those that were not."""

    findings: tuple[ValueFinding, ...]
    judged: tuple[str, ...]
    open: tuple[str, ...]


def judge_values(records: Records, roles: Roles) -> Judgement:
    """Return all findings, the errors first, in the order of computing."""
    found: list[ValueFinding] = []
    judged: list[str] = []
    left: list[str] = []
    for code, applies, search in INVARIANTS:
        if not applies(records, roles):
            left.append(code)
            continue
        judged.append(code)
        found += search(records, roles)
    kept = _first_causes(found)
    order = {code: at for at, (code, *_) in enumerate(INVARIANTS)}
    kept.sort(key=lambda each: (not each.error, each.turn, order.get(each.code, 99)))
    return Judgement(findings=tuple(kept), judged=tuple(judged), open=tuple(left))


#: what follows from another finding at the same turn or before: consequence -> causes
FOLLOWS = {
    "replicas_differ": {"gradients_differ", "first_nan", "norm_is_local", "units_crossed"}
    | {"touched_in_flight", "result_dropped", "in_place_of_strided"},
    "gradients_differ": {"result_dropped", "touched_in_flight", "norm_is_local", "first_nan"}
    | {"units_crossed", "replicas_differ", "in_place_of_strided", "masks_differ"}
    | {"no_gradient_through"},
    "norm_is_local": {"gradients_differ", "replicas_differ", "first_nan", "result_dropped"},
    "gradient_missing": {"gradients_differ", "replicas_differ", "parameter_not_wrapped"},
    "same_order_each_epoch": {"same_samples"},
    "same_mask": {"same_samples", "gradients_differ", "replicas_differ", "masks_differ"},
}


def _first_causes(found: Sequence[ValueFinding]) -> list[ValueFinding]:
    """Return findings without those that follow from another one, which came before."""
    kept = []
    for each in found:
        causes = [
            other
            for other in found
            if other.code in FOLLOWS.get(each.code, ())
            and (other.error or not each.error)
            and other.turn <= each.turn
            and (each.code not in FOLLOWS.get(other.code, ()) or _precedes(other, each))
        ]
        if not causes:
            kept.append(each)
    return kept


def _precedes(one: ValueFinding, other: ValueFinding) -> bool:
    """Whether a finding is the cause of another one where either may be."""
    if one.turn != other.turn:
        return one.turn < other.turn
    rank = ("replicas_differ", "norm_is_local", "gradients_differ")
    if "replicas_differ" in {one.code, other.code} and "gradients_differ" in {one.code, other.code}:
        return one.code == ("gradients_differ" if one.turn == other.turn else "replicas_differ")
    return one.code in rank and rank.index(one.code) > rank.index(other.code)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{each}`" for each in names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _parts(values: Mapping[int, Any]) -> list[list[int]]:
    """Return ranks by what they hold, the largest part first."""
    parts: dict[Any, list[int]] = defaultdict(list)
    for rank, value in values.items():
        parts[value].append(rank)
    return sorted(parts.values(), key=lambda ranks: (-len(ranks), ranks))


def _apart(values: Mapping[int, Any]) -> str:
    """Say which ranks hold something else than the others."""
    parts = _parts(values)
    if len(parts) == len(values):
        return f"{ranks_text([*values])} each hold another value"
    others = sorted(rank for part in parts[1:] for rank in part)
    verb = "holds" if len(others) == 1 else "hold"
    return f"{ranks_text(others)} {verb} another value than {ranks_text(parts[0])}"


# -------------------------------------------------------------------------------------------------
# Replicas: their weights at each use, their gradients at the optimizer.

#: where weights are compared: the turn; 0 at a module's call, 1 before a step, 2 after it; which
Point = tuple[int, int, int]


class _Timeline:
    """The weights of one rank, from point to point."""

    def __init__(self, record: ValueRecord) -> None:
        self.record = record
        self.events: list[tuple[Point, Any]] = []
        counts: Counter[tuple[int, int]] = Counter()
        both: list[tuple[int, int, Any]] = [(e.at, 0, e) for e in record.forwards]
        both += [(e.at, 1, e) for e in record.steps]
        for _, kind, event in sorted(both, key=lambda each: each[0]):
            count = counts[event.turn, kind]
            counts[event.turn, kind] += 1
            self.events.append(((event.turn, kind, count), event))

    def walk(self) -> Iterator[tuple[Point, Any, dict[str, str]]]:
        """Yield each point with its event and the hash of every parameter there, by name."""
        names = {number: each.name for number, each in self.record.parameters.items()}
        state = {each.name: each.first for each in self.record.parameters.values()}
        for point, event in self.events:
            for number, details in event.changed.items():
                state[names[number]] = details
            yield point, event, state
            if isinstance(event, OptimizerStep):
                for number, details in event.after.items():
                    state[names[number]] = details
                yield (point[0], 2, point[2]), event, state


def _together(records: Records, ranks: Ranks) -> Iterator[tuple[Point, dict[int, Any]]]:
    """Yield the points that all ranks come to, with the event and the weights of each."""
    lines = {rank: _Timeline(records[rank]) for rank in ranks if rank in records}
    if len(lines) < 2:
        return
    common = set.intersection(*({p for p, *_ in line.walk()} for line in lines.values()))
    walks = {rank: line.walk() for rank, line in lines.items()}
    for point in sorted(common, key=_order_of_point):
        found = {}
        for rank, walk in walks.items():
            for at, event, state in walk:
                if at == point:
                    found[rank] = (event, state)
                    break
        if len(found) < len(walks):
            return
        yield point, found


def _order_of_point(point: Point) -> tuple[int, int, int]:
    turn, kind, count = point
    return turn, (0 if kind == 0 else 1), 2 * count + (kind == 2)


def find_replicas_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield replicas whose weights are not equal any more, or whose gradients are not."""
    for group in roles.unlike:
        yield _begin_apart(records, group)
    for group in roles.replicas:
        yield from _first_difference(records, group)
    yield from _scales_apart(records, roles)


def find_ties_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield an embedding that two stages of a pipeline begin with, and that is not one any more."""
    del roles
    for one, other in combinations(find_stages(records), 2):
        if _trains_alike(records[one], records[other]):
            continue  # each has a whole model: they pass on something else than a pipeline does
        for mine, theirs in _ties(records[one], records[other]):
            for step, another in zip(records[one].steps, records[other].steps, strict=False):
                if step.after.get(mine) == another.after.get(theirs):
                    continue
                if mine not in step.after or theirs not in another.after:
                    break
                names = [records[one].parameters[mine].name, records[other].parameters[theirs].name]
                yield ValueFinding(
                    code="replicas_differ",
                    message=f"`{names[0]}` of rank {one} and `{names[1]}` of rank {other} are one "
                    f"weight of two stages, and are not equal any more after step {step.turn}",
                    ranks=(one, other),
                    rank=one,
                    place=step.place,
                    hint="sum the gradients of a weight that two stages share over these stages, "
                    "before the optimizer steps",
                    turn=step.turn,
                    name=names[0],
                )
                return


def _ties(one: ValueRecord, other: ValueRecord) -> Iterator[tuple[int, int]]:
    """Yield the parameters of two stages that begin alike, and of which one is an embedding."""
    embeddings = {e.details[0] for e in one.of_kind("embedding")}
    others = {e.details[0] for e in other.of_kind("embedding")}
    for mine, theirs in product(_trained_weights(one), _trained_weights(other)):
        about, alike = one.parameters[mine], other.parameters[theirs]
        is_one = about.first == alike.first and about.shape == alike.shape
        if is_one and not about.constant and (mine in embeddings or theirs in others):
            yield mine, theirs


def _trains_alike(one: ValueRecord, other: ValueRecord) -> bool:
    """Whether most of what two ranks train began alike."""
    firsts = [{each.parameters[n].first for n in _trained_weights(each)} for each in (one, other)]
    return len(firsts[0] & firsts[1]) * 2 > max(map(len, firsts))


def _trained_weights(record: ValueRecord) -> list[int]:
    """Return the parameters that have a gradient at the first step."""
    return [n for step in record.steps[:1] for n, each in step.gradients.items() if each]


def _begin_apart(records: Records, group: ReplicaGroup) -> ValueFinding:
    """Return that weights differ before the first step, though their gradients are reduced."""
    rank = group.ranks[0]
    record = records[rank]
    names = [each.name for each in record.parameters.values() if each.name in group.names]
    about = record.parameters[record.names[names[0]]]
    place = about.made if about.made >= 0 else about.place
    if loaded := _loaded_on_some(records, group.ranks, 0):
        rank, place = loaded
    elif mixed := _mixes_parts(records, group):
        return mixed
    who = f": {ranks_text((rank,))} loads a state that the others do not load" if loaded else ""
    return ValueFinding(
        code="replicas_differ",
        message=f"{_names(names)} {'are' if len(names) > 1 else 'is'} not equal on "
        f"{ranks_text(group.ranks)} when the training begins, and {group.because} makes "
        f"{'them replicas' if len(names) > 1 else 'it a replica'}{who}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        hint="seed all ranks alike before the model is made, or broadcast its weights from one "
        "rank: `for p in model.parameters(): dist.broadcast(p.data, 0)`",
        turn=0,
        name=names[0],
    )


def _loaded_on_some(records: Records, ranks: Ranks, turn: int) -> tuple[int, int] | None:
    """Return a rank and the line at which it loads a state before a turn, and others do not."""
    lines = {
        rank: [e.details[1] for e in records[rank].of_kind("load") if e.details[0] <= turn]
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
        alike = _parts({r: records[r].parameters[records[r].names[name]].first for r in call.ranks})
        if len(alike) > 1 and (name in experts or {len(each) for each in alike} != {1}):
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


def _exact_reductions(
    records: Records, group: ReplicaGroup
) -> Iterator[tuple[int, str, CarryingCall]]:
    """Yield the calls that reduce the gradients of a group, by the memory of these."""
    for rank in group.ranks:
        for call in records[rank].calls:
            for each in call.tensors if call.ranks == group.ranks else ():
                for number in each.parameters if each.exact else ():
                    name = records[rank].parameters[number].name
                    if each.carries == "gradient" and name in group.names:
                        yield rank, name, call


def _first_difference(records: Records, group: ReplicaGroup) -> Iterator[ValueFinding]:
    averaged = _find_averaged(records, group) if group.averages else None
    for point, found in _together(records, group.ranks):
        kind = point[1]
        events = {rank: event for rank, (event, _) in found.items()}
        states = {rank: state for rank, (_, state) in found.items()}
        apart = (
            _weights_apart(records, group, states, events)
            if _is_judged(group, averaged, point)
            else []
        )
        gradients = kind == 1 and group.gradients and not apart
        found_apart = _gradients_apart(records, group, states, events) if gradients else None
        if apart:
            found_apart = _replicas_differ(records, group, apart, states, events, point)
        if found_apart is not None:
            if group.surely or not _meet_again(records, group, [found_apart.name], point):
                yield found_apart
            return
        if kind == 0 and group.buffers and not next(iter(events.values())).training:
            apart = [] if group.keeps_buffers else _apart_names(states, group.buffers)
            if apart:
                yield _buffers_differ(group, apart, states, events, point)
                return


def _is_judged(group: ReplicaGroup, averaged: set[int] | None, point: Point) -> bool:
    """Whether the weights of a group must be equal at a point."""
    turn, kind, _ = point
    if averaged is not None:
        return kind == 0 and (turn == 0 or turn in averaged)
    return kind == 0 or not group.only_used


def _weights_apart(
    records: Records,
    group: ReplicaGroup,
    states: Mapping[int, Mapping[str, str]],
    events: Mapping[int, Any],
) -> list[str]:
    """Return the parameters of a group that are not equal; those in use where others may be."""
    apart = _apart_names(states, group.names)
    return _in_use(records, apart, events) if group.only_used else apart


def _in_use(records: Records, names: list[str], events: Mapping[int, Any]) -> list[str]:
    """Return the parameters of the module that every rank calls here."""

    def is_called(rank: int, name: str, event: Any) -> bool:
        record = records[rank]
        number = record.names[name]
        if any(number in step.gradients for step in record.steps[:3]):
            return bool(event.training)
        return bool(record.parameters[number].root == event.root)

    return [name for name in names if all(is_called(r, name, e) for r, e in events.items())]


def _meet_again(records: Records, group: ReplicaGroup, names: list[str], point: Point) -> bool:
    """Whether weights that differ are equal at a later use: they differ on purpose in between."""
    differed = False
    for at, found in _together(records, group.ranks):
        if _order_of_point(at) < _order_of_point(point):
            continue
        apart = _apart_names({rank: state for rank, (_, state) in found.items()}, set(names))
        if differed and at[1] == 0 and not apart:
            return True
        differed = differed or bool(apart)
    return False


def _find_averaged(records: Records, group: ReplicaGroup) -> set[int]:
    """Return the turns before which the weights of a group were sent over it."""
    found: set[int] = set()
    rank = group.ranks[0]
    record = records.get(rank)
    if record is None:
        return found
    steps = [each.at for each in record.steps]
    for call in record.calls:
        carries = any(each.carries == "weight" for each in call.tensors)
        if carries and call.operation in EQUALIZING and set(call.ranks) >= set(group.ranks):
            before = [at for at in steps if at < call.at]
            later = [f.turn for f in record.forwards if f.at > call.at]
            nothing_between = later and not any(
                call.at < at < next(f.at for f in record.forwards if f.at > call.at) for at in steps
            )
            if before and nothing_between:
                found.add(later[0])
    return found


def _apart_names(states: Mapping[int, Mapping[str, str]], names: set[str]) -> list[str]:
    return [
        name
        for name in next(iter(states.values()))
        if name in names and len({state.get(name) for state in states.values()}) > 1
    ]


def _replicas_differ(
    records: Records,
    group: ReplicaGroup,
    apart: list[str],
    states: Mapping[int, Mapping[str, str]],
    events: Mapping[int, Any],
    point: Point,
) -> ValueFinding:
    turn, kind, _ = point
    where = _apart({rank: state.get(apart[0]) for rank, state in states.items()})
    when = f"after step {turn}" if kind == 2 else f"at step {turn}"
    parts = _parts({rank: state.get(apart[0]) for rank, state in states.items()})
    rank = parts[-1][0]
    place = _find_write_line(group, records[rank], apart[0], events[rank])
    if kind == 0 and (loaded := _loaded_on_some(records, group.ranks, turn)):
        rank, place = loaded
    rates = {r: e.rates for r, e in events.items() if isinstance(e, OptimizerStep) and e.rates}
    hint = (
        "let every rank do the same to its weights: broadcast them once at the start, synchronise "
        "each gradient, and write a weight by nothing that differs between ranks"
    )
    if len(set(rates.values())) > 1:
        details = "; ".join(f"rank {r}: {', '.join(map(str, v))}" for r, v in rates.items())
        hint = f"the learning rates differ ({details}): step the schedule on every rank alike"
    return ValueFinding(
        code="replicas_differ",
        message=f"{_names(apart)} {'are' if len(apart) > 1 else 'is'} not equal any more {when}: "
        f"{where}, and {group.because} makes "
        f"{'them replicas' if len(apart) > 1 else 'it a replica'}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        hint=hint,
        turn=turn,
        name=apart[0],
    )


def _find_write_line(group: ReplicaGroup, record: ValueRecord, name: str, event: Any) -> int:
    """Return the line of the event at which a parameter was seen to be another."""
    number = record.names.get(name, -1)
    if isinstance(event, OptimizerStep) and number in event.changed:
        before = [each for each in record.forwards if each.at < event.at]
        if before:
            return before[-1].place
    if group.only_used and not isinstance(event, OptimizerStep):
        stepped = [each for each in record.steps if each.at < event.at and number in each.after]
        if stepped:
            return stepped[-1].place
    return int(event.place)


def _gradients_apart(
    records: Records,
    group: ReplicaGroup,
    states: Mapping[int, Mapping[str, str]],
    events: Mapping[int, OptimizerStep],
) -> ValueFinding | None:
    """Return that equal weights meet unequal gradients; or that some ranks have none."""
    apart: list[str] = []
    missing: list[str] = []
    hashes: dict[str, dict[int, str | None]] = {}
    for name in sorted(group.names):
        details: dict[int, str | None] = {}
        for rank, step in events.items():
            number = records[rank].names.get(name, -1)
            if number not in step.gradients:
                break
            details[rank] = step.gradients[number]
        if len(details) < len(events) or len({s.get(name) for s in states.values()}) > 1:
            continue
        hashes[name] = details
        if len(set(details.values())) > 1:
            (missing if None in details.values() else apart).append(name)
    if not apart and not missing:
        return None
    rank, step = next(iter(events.items()))
    if apart:
        count = len(hashes)
        who = _apart(hashes[apart[0]])
        every = "all gradients" if len(apart) == count > 1 else f"{len(apart)} of {count} gradients"
        return ValueFinding(
            code="gradients_differ",
            message=f"equal weights meet unequal gradients at step {step.turn}: "
            f"{who} for {_names(apart)} ({every}), so nothing has synchronised "
            f"{'them' if len(apart) > 1 else 'it'}",
            ranks=group.ranks,
            rank=rank,
            place=step.place,
            hint="reduce every gradient over the data-parallel ranks before the optimizer steps: "
            "call the model through DDP, leave `no_sync` with the last microbatch, or all_reduce "
            "`p.grad` by hand",
            turn=step.turn,
            name=apart[0],
        )
    none = [rank for rank, details in hashes[missing[0]].items() if details is None]
    return ValueFinding(
        code="gradient_missing",
        message=f"{_names(missing)} {'have' if len(missing) > 1 else 'has'} no gradient on "
        f"{ranks_text(none)} at step {step.turn}, and one on the other ranks",
        ranks=tuple(none),
        rank=none[0],
        place=events[none[0]].place,
        hint="let every rank use the parameter, or freeze it on all of them",
        turn=step.turn,
        error=False,
        name=missing[0],
    )


def _buffers_differ(
    group: ReplicaGroup,
    apart: list[str],
    states: Mapping[int, Mapping[str, str]],
    events: Mapping[int, Any],
    point: Point,
) -> ValueFinding:
    rank, event = next(iter(events.items()))
    where = _apart({r: state.get(apart[0]) for r, state in states.items()})
    return ValueFinding(
        code="replicas_differ",
        message=f"the buffers {_names(apart)} are not equal at step {point[0]}, where the model is "
        f"evaluated: {where}",
        ranks=group.ranks,
        rank=rank,
        place=event.place,
        hint="broadcast the buffers before the evaluation, leave `broadcast_buffers` on, or use "
        "SyncBatchNorm",
        turn=point[0],
        error=False,
        name=apart[0],
    )


def _scales_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield scalers of gradients that do not go on alike on ranks of one model."""
    details = {rank: [*record.of_kind("scale")] for rank, record in records.items()}
    for ranks in (*roles.data, *roles.model):
        lists = {rank: details[rank] for rank in ranks if details.get(rank)}
        if len(lists) < 2:
            continue
        for together in zip(*lists.values(), strict=False):
            now = {
                rank: (e.details[2], e.details[3]) for rank, e in zip(lists, together, strict=True)
            }
            if len(set(now.values())) == 1:
                continue
            skipped = [rank for rank, (_, skips) in now.items() if skips]
            scales = ", ".join(f"{scale:g} on rank {rank}" for rank, (scale, _) in now.items())
            rank = skipped[0] if skipped else _parts(now)[-1][0]
            step = together[[*lists].index(rank)]
            skips = f"; {ranks_text(skipped)} skipped the step" if skipped else ""
            yield ValueFinding(
                code="replicas_differ",
                message=f"each rank scales its gradients by itself: the scale is {scales} at step "
                f"{step.details[0]}{skips}, and the ranks train one model",
                ranks=tuple(lists),
                rank=rank,
                place=step.details[1],
                hint="reduce what the scaler found (all_reduce of `found_inf`, "
                "torch.distributed.fsdp.sharded_grad_scaler), or unscale after the gradients are "
                "reduced, so that all ranks skip the same steps",
                turn=step.details[0],
            )
            return


# -------------------------------------------------------------------------------------------------
# Rows.


def find_same_samples(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield loaders that deal the same rows to data-parallel ranks."""
    for ranks in roles.data:
        present = [rank for rank in ranks if rank in records]
        loaders = sorted({n for rank in present for n in records[rank].loaders})
        found = next(filter(None, (_find_shared_rows(records, present, n) for n in loaders)), None)
        found = found or _find_shared_inputs(records, present)
        if found is not None:
            yield found


def _rows_of(record: ValueRecord, loader: int, epoch: int, *, trained: bool) -> list[LoadedBatch]:
    return [
        each
        for each in record.batches
        if each.loader == loader and each.epoch == epoch and each.trained is trained
    ]


def _find_shared_rows(records: Records, ranks: list[int], loader: int) -> ValueFinding | None:
    """Return that two ranks were dealt the same rows in one epoch of training."""
    about = {rank: records[rank].loaders.get(loader) for rank in ranks}
    if any(each is None or each["replacement"] for each in about.values()):
        return None
    epochs = sorted(
        {b.epoch for rank in ranks for b in records[rank].batches if b.loader == loader}
    )
    for epoch in epochs:
        batches = {r: _rows_of(records[r], loader, epoch, trained=True) for r in ranks}
        rows = {rank: _identities(found) for rank, found in batches.items()}
        best: tuple[int, int, int] = (0, 0, 0)
        for one, other in combinations(ranks, 2):
            shared = sum((rows[one] & rows[other]).values())
            if shared > best[0]:
                best = (shared, one, other)
        shared, one, other = best
        total = min(sum(rows[one].values()), sum(rows[other].values())) if shared else 0
        padding = len(ranks) if (about[one] or {}).get("num_replicas", 0) else 0
        if total >= MOST_FEW and shared >= _same_part(rows, one, other) and shared > padding:
            batch = batches[one][0]
            alike = _all_alike(rows)
            who = ranks_text(ranks) if alike else f"ranks {one} and {other}"
            return ValueFinding(
                code="same_samples",
                message=f"{who} train on the same rows: {shared} of {total} rows of epoch {epoch} "
                f"are on {'each of them' if alike else 'both'}",
                ranks=tuple(ranks if alike else (one, other)),
                rank=one,
                place=batch.place,
                hint=_dealt(about[one] or {}),
                turn=0,
            )
    return None


def _same_part(rows: Mapping[int, Counter[Any]], one: int, other: int) -> float:
    """Return how many rows of two ranks are too many: fewer where each rank has its own but once.

    Rows that are twice on one rank are drawn with replacement, or are alike in the dataset.
    """
    once = all(max(rows[rank].values()) == 1 for rank in (one, other))
    total = min(sum(rows[one].values()), sum(rows[other].values()))
    return max(FEW_PART * total, float(MOST_FEW // 2)) if once else SAME_PART * total


def _find_shared_inputs(records: Records, ranks: list[int]) -> ValueFinding | None:
    """Return that data-parallel ranks call their model with the same new rows at every step.

    For programs without a loader. A batch that is the same at each step is a trial, no data.
    """
    inputs = {
        rank: [(e.details[0], tuple(e.details[1]), e.details[3]) for e in record.of_kind("in")]
        for rank, record in records.items()
        if rank in ranks
    }
    first, *others = (inputs[rank] for rank in ranks)
    batches = [rows for _, rows, _ in first]
    if any(records[rank].batches for rank in ranks) or not batches:
        return None
    is_data = len({turn for turn, *_ in first}) > 1 and len(set(batches)) == len(batches)
    count = sum(map(len, batches))
    if not is_data or count < MOST_FEW or len({r for rows in batches for r in rows}) < count / 2:
        return None
    alike = [
        rank
        for rank, each in zip(ranks[1:], others, strict=True)
        if [rows for _, rows, _ in each] == batches
    ]
    if not alike:
        return None
    return ValueFinding(
        code="same_samples",
        message=f"{ranks_text([ranks[0], *alike])} train on the same rows: the model is called "
        f"with the same {count} rows on each of them",
        ranks=(ranks[0], *alike),
        rank=ranks[0],
        place=first[0][2],
        hint="give each data-parallel rank its own rows: draw them from a generator that is seeded "
        "by the rank, or take the rank's part of the batch",
        error=len(batches) >= MOST_TRIALS and count >= MOST_TRIED,
    )


def _dealt(about: Mapping[str, Any]) -> str:
    if about.get("num_replicas"):
        return (
            f"its DistributedSampler has num_replicas={about['num_replicas']} and "
            f"rank={about.get('rank')} on this rank: give each rank its own number"
        )
    if about.get("rows", -1) < 0:
        return (
            "let each rank yield its own rows: skip those whose number modulo the world size is "
            "another one, in each worker of the loader too"
        )
    return (
        "give the loader `sampler=DistributedSampler(dataset)`, so that each rank has its own rows"
    )


def _all_alike(rows: Mapping[int, Counter[Any]]) -> bool:
    first = next(iter(rows.values()))
    return len(rows) > 2 and all(each == first for each in rows.values())


def _identities(batches: Sequence[LoadedBatch]) -> Counter[Any]:
    """Return what tells rows apart: their content; the index too where some are alike."""
    content = [row for batch in batches for row in batch.rows]
    if len(set(content)) >= 0.9 * len(content):
        return Counter(content)
    if any(each.indices is None or len(each.indices) != len(each.rows) for each in batches):
        return Counter()
    pairs = [pair for each in batches for pair in zip(each.rows, each.indices or (), strict=True)]
    return Counter(pairs)


def find_padded_metrics(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield evaluations whose metric counts the rows that a sampler adds twice."""
    del roles
    for rank, record in records.items():
        for loader, about in record.loaders.items():
            size, total = about["rows"], about.get("total_size", 0)
            if size <= 0 or total <= size or about.get("drop_last"):
                continue
            evaluated = [b for b in record.batches if b.loader == loader and not b.trained]
            if not evaluated or any(b.loader == loader and b.trained for b in record.batches):
                continue
            last = evaluated[-1]
            sums = [
                call
                for call in record.calls
                if call.at > evaluated[0].at and call.operation == "allreduce_"
            ]
            for call in sums:
                values = [v for each in call.tensors for v in (*each.sums, each.sum)]
                if any(value is not None and value == total for value in values):
                    yield ValueFinding(
                        code="same_samples",
                        message=f"{total - size} of {size} rows count twice in the metric: the "
                        f"sampler pads the dataset to {total} rows, and that many are summed",
                        ranks=tuple(sorted(records)),
                        rank=rank,
                        place=call.place,
                        hint="evaluate without padding: give each rank "
                        "`range(rank, len(dataset), world_size)`, or drop the rows that were added",
                        turn=10**6,
                    )
                    return
            del last


def find_same_order(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield samplers that shuffle and deal every epoch in one and the same order."""
    del roles
    for rank, record in records.items():
        for loader, about in record.loaders.items():
            if not about.get("num_replicas") or not about.get("shuffle"):
                continue
            epochs = sorted({b.epoch for b in record.batches if b.loader == loader and b.trained})
            orders = [
                [row for b in _rows_of(record, loader, e, trained=True) for row in b.rows]
                for e in epochs
            ]
            for (one, first), (other, second) in pairwise(zip(epochs, orders, strict=True)):
                if len(first) > 4 and first == second and len(set(first)) > 4:
                    yield ValueFinding(
                        code="same_order_each_epoch",
                        message=f"epochs {one} and {other} deal their rows in one and the same "
                        "order, though the sampler shuffles",
                        ranks=tuple(sorted(records)),
                        rank=rank,
                        place=next(b.place for b in record.batches if b.loader == loader),
                        hint="call `sampler.set_epoch(epoch)` at the beginning of each epoch",
                        error=False,
                    )
                    return


# -------------------------------------------------------------------------------------------------
# Calls: what they join, what they lose.


def _calls_together(
    records: Records, ranks: Ranks, keep: Callable[[CarryingCall], bool]
) -> Iterator[dict[int, CarryingCall]]:
    """Yield the calls of a group that belong together: the n-th of each rank."""
    lists = [
        [c for c in records[rank].calls if c.ranks == ranks and keep(c)]
        for rank in ranks
        if rank in records
    ]
    if len(lists) < 2 or len({len(each) for each in lists}) != 1:
        return
    for together in zip(*lists, strict=True):
        if len({(each.operation, each.tensors[0].size) for each in together}) == 1:
            yield dict(zip((r for r in ranks if r in records), together, strict=True))


def _groups_of_calls(records: Records) -> list[Ranks]:
    return sorted({c.ranks for r in records.values() for c in r.calls if len(c.ranks) > 1})


def find_crossed_units(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield collectives that join parts of different parameters."""
    del roles
    for ranks in _groups_of_calls(records):
        for met in _calls_together(records, ranks, _names_parameters):
            names = {
                rank: tuple(
                    records[rank].parameters[n].name for t in call.tensors for n in t.parameters
                )
                for rank, call in met.items()
            }
            if len(set(names.values())) > 1 and not _are_tied(records, names):
                one, other = _parts(names)[0][0], _parts(names)[-1][0]
                call = met[other]
                yield _report_crossed(
                    f"one {call.operation.strip('_')} joins {_names(names[one])} of rank {one} "
                    f"with {_names(names[other])} of rank {other}",
                    ranks,
                    other,
                    call.place,
                    call.turn,
                )
                return
    yield from _find_crossed_fsdp_units(records)


def _names_parameters(call: CarryingCall) -> bool:
    return all(each.exact and each.parameters for each in call.tensors)


def _are_tied(records: Records, names: Mapping[int, tuple[str, ...]]) -> bool:
    """Whether parameters of other names hold the same: one weight that two stages share."""
    firsts = {
        tuple(records[rank].parameters[records[rank].names[name]].first for name in own)
        for rank, own in names.items()
    }
    return len(firsts) == 1


def _report_crossed(words: str, ranks: Ranks, rank: int, place: int, turn: int) -> ValueFinding:
    return ValueFinding(
        code="units_crossed",
        message=words,
        ranks=ranks,
        rank=rank,
        place=place,
        hint="let every rank go through its parameters in one order: that of "
        "`named_parameters()`, never that of a set or of a condition on the rank",
        turn=turn,
    )


def _find_crossed_fsdp_units(records: Records) -> Iterator[ValueFinding]:
    groups = {tuple(e.details[1]) for record in records.values() for e in record.of_kind("unit")}
    for ranks in sorted(groups):
        lists = [
            [e for e in records[rank].of_kind("unit") if tuple(e.details[1]) == ranks]
            for rank in ranks
            if rank in records
        ]
        for together in zip(*lists, strict=False):
            names = [tuple(each.details[2]) for each in together]
            if len(set(names)) > 1 and all(all(each) for each in names):
                other = next(at for at, each in enumerate(names) if each != names[0])
                yield _report_crossed(
                    f"FSDP gathers {_names(names[0])} on rank {ranks[0]} and "
                    f"{_names(names[other])} on rank {ranks[other]} in one all_gather",
                    ranks,
                    ranks[other],
                    together[other].details[3],
                    together[other].details[0],
                )
                return


def find_sums_of_replicas(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield sums of gradients that are equal on all ranks, and are not divided afterwards."""
    for ranks in roles.data:
        for met in _calls_together(records, ranks, lambda call: call.op == "sum"):
            tensors = [call.tensors[0] for call in met.values()]
            first = tensors[0]
            if first.carries != "gradient" or first.size < 8 or first.constant:
                continue
            if len({each.hash for each in tensors}) > 1 or not first.exact:
                continue
            rank, call = next(iter(met.items()))
            step = next((s for s in records[rank].steps if s.at > call.at), None)
            used = step.gradients.get(first.parameters[0]) if step and first.parameters else None
            if used is not None and call.results and used == call.results[0]:
                name = records[rank].parameters[first.parameters[0]].name
                yield ValueFinding(
                    code="sum_of_replicas",
                    message=f"the gradient of `{name}` is equal on {ranks_text(ranks)} already, "
                    f"and is summed: it is {len(ranks)} times what one rank has",
                    ranks=ranks,
                    rank=rank,
                    place=call.place,
                    hint="leave the all_reduce out, or divide by the size of the group",
                    turn=call.turn,
                    error=False,
                    name=name,
                )
                return


#: what a process proved of itself: code -> its words, and what to do
PROVED: dict[str, tuple[Callable[[Mapping[str, Any]], str], str, bool]] = {
    "no_gradient_through": (
        lambda about: (
            "no gradient goes through this call: it takes a tensor with a graph, and "
            f"{about['how']}, so the gradient of the other ranks is lost"
        ),
        (
            "use `torch.distributed.nn.functional` (or functional collectives with autograd) where "
            "a gradient has to go through, or `detach()` what is only shown"
        ),
        True,
    ),
    "result_dropped": (
        lambda about: (
            f"the parts of {about['parts'] - 1} ranks are lost: the list holds one tensor "
            f"{about['parts']} times, which has the part that comes last"
            if "parts" in about
            else f"the result is lost: the call writes into `{about['argument']}`, a "
            "temporary that no variable holds"
        ),
        (
            "give each result a tensor that you keep: a name before the call in place of a "
            "temporary, `[torch.empty_like(x) for _ in range(n)]` in place of "
            "`[torch.empty_like(x)] * n`"
        ),
        True,
    ),
    "touched_in_flight": (
        lambda about: (
            "the tensor of this call is "
            + (f"read by {about.get('by')}" if about["how"] == "read" else "written")
            + " before its wait"
        ),
        "call `wait()` first",
        True,
    ),
    "in_place_of_strided": (
        lambda about: (
            "Gloo reduces the first elements of the memory, not those of this tensor: it "
            f"has strides (shape {about['shape']})"
        ),
        (
            "reduce a contiguous copy, and copy the result back: `y = x.contiguous(); "
            "dist.all_reduce(y); x.copy_(y)`"
        ),
        False,
    ),
}


def find_proved(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield the mistakes that a process proved of itself, each line once."""
    del roles
    seen: dict[tuple[str, Any], list[int]] = defaultdict(list)
    firsts: dict[tuple[str, Any], tuple[int, Any, int]] = {}
    for rank, record in records.items():
        for each in record.of_kind("x"):
            code, place, about = each.details
            key = code, record.places.get(place)
            if rank not in seen[key]:
                seen[key].append(rank)
            turn = max((s.turn + 1 for s in record.steps if s.at < each.at), default=0)
            firsts.setdefault(key, (rank, (place, about), turn))
    for (code, _), (rank, (place, about), turn) in firsts.items():
        words, hint, error = PROVED[code]
        yield ValueFinding(
            code=code,
            message=words(about),
            ranks=tuple(seen[code, records[rank].places.get(place)]),
            rank=rank,
            place=place,
            hint=hint,
            turn=turn,
            error=error,
        )


# -------------------------------------------------------------------------------------------------
# Norms, masks, numbers that are none, parameters that come late.


def find_local_norms(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield clipping by norms that differ on ranks of one model, where it clips."""
    details = {rank: [*record.of_kind("clip")] for rank, record in records.items()}
    for ranks, what in _norm_groups(records, roles):
        lists = {rank: details[rank] for rank in ranks if details.get(rank)}
        if len(lists) < 2:
            continue
        for together in zip(*lists.values(), strict=False):
            norms = dict(zip(lists, (each.details[2] for each in together), strict=True))
            most = together[0].details[3]
            if any(each.details[4] for each in together) or not all(
                map(math.isfinite, norms.values())
            ):
                continue
            low, high = min(norms.values()), max(norms.values())
            if high - low <= NORMS_APART * high or not math.isfinite(most) or high <= most:
                continue
            rank = next(iter(norms))
            shown = ", ".join(f"{norm:.4g} on rank {r}" for r, norm in [*norms.items()][:4])
            yield ValueFinding(
                code="norm_is_local",
                message=f"the gradients are clipped by another norm on each rank: {shown}, and "
                f"these ranks {what}",
                ranks=tuple(lists),
                rank=rank,
                place=together[0].details[1],
                hint="take the norm of the whole model: sum the squares over its ranks and clip by "
                "the root of that; reduce gradients before they are clipped",
                turn=together[0].details[0],
            )
            return


def _norm_groups(records: Records, roles: Roles) -> Iterator[tuple[Ranks, str]]:
    parts = find_scattering_groups(records) | {*roles.model}
    parts |= {tuple(e.details[0]) for r in records.values() for e in r.of_kind("sharded")}
    for ranks in sorted(parts):
        yield ranks, "hold parts of one model"
    for ranks in roles.data:
        yield ranks, "hold replicas of one model"


def find_masks(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield random calls that must agree and do not, or agree and should not."""
    for ranks in roles.model:
        if found := _masks(records, ranks, differ=True):
            yield found
            return
    for ranks in roles.data:
        if found := _masks(records, ranks, differ=False):
            yield found
            return


def _masks(records: Records, ranks: Ranks, *, differ: bool) -> ValueFinding | None:
    lists = [[*records[rank].of_kind("rand")] for rank in ranks if rank in records]
    for together in zip(*lists, strict=False):
        states = {each.details[2] for each in together}
        inputs = {each.details[3] for each in together}
        turn, place = together[0].details[:2]
        if differ and len(inputs) == 1 and len(states) > 1:
            return ValueFinding(
                code="masks_differ",
                message="the ranks of one tensor-parallel group drop other elements of one and the "
                f"same activation at step {turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint="draw the mask of a replicated activation from one generator on all ranks of "
                "the group: seed them alike, and another seed only for activations that are split",
                turn=turn,
            )
        if not differ and len(inputs) == len(together) and len(states) == 1:
            return ValueFinding(
                code="same_mask",
                message="the data-parallel ranks draw one and the same mask for other rows at step "
                f"{turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint="seed each data-parallel rank by itself once the weights are equal: "
                "`torch.manual_seed(seed + rank)`",
                turn=turn,
                error=False,
            )
    return None


def find_first_nan(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield where the first value that is not a number appears."""
    firsts = {
        rank: found
        for rank, record in records.items()
        if (found := next(record.of_kind("nan"), None)) is not None
    }
    if not firsts:
        return
    rank, first = min(
        firsts.items(), key=lambda each: (each[1].details[0], each[1].details[1] != "output")
    )
    turn, kind, name, place = first.details
    alike = [r for r, each in firsts.items() if each.details[:3] == first.details[:3]]
    scaled = any(True for record in records.values() for _ in record.of_kind("scale"))
    others = sorted(set(records) - set(alike))
    lines = [set(ranks) for ranks in roles.data if rank in ranks]
    if others and not any(line & set(others) for line in lines):
        return  # stages of a pipeline pass other values on, and some that were never set
    disagree = bool(others) and kind == "output"
    what = f"the output of `{name}`" if kind == "output" else f"the gradient of `{name}`"
    details = f", and not on {ranks_text(others)}" if others else ""
    yield ValueFinding(
        code="first_nan",
        message=f"{what} has the first NaN or infinity, at step {turn} on "
        f"{ranks_text(alike)}{details}",
        ranks=tuple(alike),
        rank=rank,
        place=place,
        hint="look at what enters there: a division by zero, a logarithm, a row of the data",
        turn=turn,
        error=disagree and not scaled,
    )


def find_late_parameters(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield parameters that were made after DDP or the optimizer took its list."""
    del roles
    yield from _idle_optimizers(records)
    for rank, record in records.items():
        late = [*record.of_kind("late")]
        if not late:
            continue
        names = [record.parameters[each.details[0]].name for each in late]
        who = "the optimizer" if late[0].details[1] == "optimizer" else "DistributedDataParallel"
        place = late[0].details[2]
        yield ValueFinding(
            code="parameter_not_wrapped",
            message=f"{_names(names)} {'were' if len(names) > 1 else 'was'} made after {who} took "
            "its list, and is not in it",
            ranks=tuple(sorted(records)),
            rank=rank,
            place=place if place >= 0 else record.parameters[late[0].details[0]].place,
            hint="make the whole model first, then wrap it, then make the optimizer",
            error=False,
            name=names[0],
        )
        return


def _idle_optimizers(records: Records) -> Iterator[ValueFinding]:
    """Yield an optimizer none of whose parameters ever has a gradient, though a loss has them."""
    for rank, record in records.items():
        for number in sorted({each.optimizer for each in record.steps}):
            own = [each for each in record.steps if each.optimizer == number]
            names = {n for each in own for n in each.gradients}
            backward = {e.details[0] for e in record.of_kind("bw")}
            is_idle = all(value is None for each in own for value in each.gradients.values())
            if not is_idle or len(own) < 2 or not names or len(backward) < 2:
                continue
            if len({step.optimizer for step in record.steps}) > 1:
                continue
            yield ValueFinding(
                code="parameter_not_wrapped",
                message=f"no parameter of the optimizer has a gradient at any of {len(own)} steps, "
                "so nothing is trained: its parameters are not those of the model that is called",
                ranks=tuple(sorted(records)),
                rank=rank,
                place=own[0].place,
                hint="make the optimizer after the model is wrapped or sharded, from "
                "`model.parameters()`",
            )
            return


# -------------------------------------------------------------------------------------------------
# All of them.

Applies = Callable[[Records, Roles], bool]
Search = Callable[[Records, Roles], Iterator[ValueFinding]]


def _has(kind: str) -> Applies:
    return lambda records, _: any(True for r in records.values() for _ in r.of_kind(kind))


#: code -> whether it can be judged, and what searches
INVARIANTS: tuple[tuple[str, Applies, Search], ...] = (
    (
        "replicas_differ",
        lambda records, roles: (
            bool(roles.replicas or roles.unlike) or _has("scale")(records, roles)
        ),
        find_replicas_apart,
    ),
    ("replicas_differ", lambda records, _: len(find_stages(records)) > 1, find_ties_apart),
    (
        "same_samples",
        lambda records, roles: (
            bool(roles.data) and any(r.batches or any(r.of_kind("in")) for r in records.values())
        ),
        find_same_samples,
    ),
    (
        "same_samples",
        lambda records, _: any(r.loaders for r in records.values()),
        find_padded_metrics,
    ),
    (
        "same_order_each_epoch",
        lambda records, _: any(r.loaders for r in records.values()),
        find_same_order,
    ),
    (
        "units_crossed",
        lambda records, roles: bool(_groups_of_calls(records)) or _has("unit")(records, roles),
        find_crossed_units,
    ),
    ("sum_of_replicas", lambda _, roles: bool(roles.data), find_sums_of_replicas),
    (
        "no_gradient_through",
        lambda records, _: any(r.calls for r in records.values()),
        find_proved,
    ),
    ("norm_is_local", _has("clip"), find_local_norms),
    ("masks_differ", _has("rand"), find_masks),
    ("first_nan", lambda records, _: any(r.forwards for r in records.values()), find_first_nan),
    (
        "parameter_not_wrapped",
        lambda records, _: any(r.steps for r in records.values()),
        find_late_parameters,
    ),
)
