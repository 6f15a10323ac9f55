"""Replicas: equal weights at each use, equal gradients at the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch_scenarios.record.values.format import OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    list_names,
    part_ranks,
    tell_apart,
)
from torch_scenarios.record.values.invariants.scales import find_scales_apart
from torch_scenarios.record.values.invariants.start import find_lone_load, tell_beginning
from torch_scenarios.record.values.invariants.weights import Point, join_timelines, order_of_point
from torch_scenarios.record.values.roles import EQUALIZING, ReplicaGroup, Roles
from torch_scenarios.verdict.finding import ranks_text


def find_replicas_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield replicas whose weights are not equal any more, or whose gradients are not."""
    for group in roles.unlike:
        yield tell_beginning(records, group)
    for group in roles.replicas:
        yield from _first_difference(records, group)
    yield from find_scales_apart(records, roles)


def _first_difference(records: Records, group: ReplicaGroup) -> Iterator[ValueFinding]:
    averaged = _find_averaged(records, group) if group.averages else None
    for point, found in join_timelines(records, group.ranks):
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
    for at, found in join_timelines(records, group.ranks):
        if order_of_point(at) < order_of_point(point):
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
    where = tell_apart({rank: state.get(apart[0]) for rank, state in states.items()})
    when = f"after step {turn}" if kind == 2 else f"at step {turn}"
    parts = part_ranks({rank: state.get(apart[0]) for rank, state in states.items()})
    rank = parts[-1][0]
    place = _find_write_line(group, records[rank], apart[0], events[rank])
    if kind == 0 and (loaded := find_lone_load(records, group.ranks, turn)):
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
        message=f"{list_names(apart)} {'are' if len(apart) > 1 else 'is'} not equal any more "
        f"{when}: {where}, and {group.because} makes "
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
    if left := _find_left_step(records, group, events):
        return left
    rank, step = next(iter(events.items()))
    if apart:
        count = len(hashes)
        who = tell_apart(hashes[apart[0]])
        every = "all gradients" if len(apart) == count > 1 else f"{len(apart)} of {count} gradients"
        return ValueFinding(
            code="gradients_differ",
            message=f"equal weights meet unequal gradients at step {step.turn}: "
            f"{who} for {list_names(apart)} ({every}), so nothing has synchronised "
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
        message=f"{list_names(missing)} {'have' if len(missing) > 1 else 'has'} no gradient on "
        f"{ranks_text(none)} at step {step.turn}, and one on the other ranks",
        ranks=tuple(none),
        rank=none[0],
        place=events[none[0]].place,
        hint="let every rank use the parameter, or freeze it on all of them",
        turn=step.turn,
        error=False,
        name=missing[0],
    )


def _find_left_step(
    records: Records, group: ReplicaGroup, events: Mapping[int, OptimizerStep]
) -> ValueFinding | None:
    """Return that ranks have done a step that others have left out: they are out of step since."""
    passes = {
        rank: sum(each.at < step.at for each in records[rank].of_kind("bw"))
        for rank, step in events.items()
    }
    least = min(passes.values())
    behind = [rank for rank, count in passes.items() if count > least]
    if not behind or any(_is_accumulated(records[rank]) for rank in events):
        return None
    rank = next(rank for rank, count in passes.items() if count == least)
    turn = events[rank].turn
    return ValueFinding(
        code="replicas_differ",
        message=f"{ranks_text(behind)} {'leave' if len(behind) > 1 else 'leaves'} the step of the "
        f"optimizer out that the other ranks do behind backward pass {least} (step {turn}), and "
        f"{group.because} makes their weights replicas",
        ranks=group.ranks,
        rank=rank,
        place=events[rank].place,
        hint="let all ranks decide alike whether they step: reduce the flag first, as by "
        "`dist.all_reduce(finite, op=dist.ReduceOp.MIN)`",
        turn=turn,
    )


def _is_accumulated(record: ValueRecord) -> bool:
    """Whether several backward passes are made for a step: then their number says nothing."""
    if not record.steps:
        return False
    return sum(each.at < record.steps[0].at for each in record.of_kind("bw")) != 1


def _buffers_differ(
    group: ReplicaGroup,
    apart: list[str],
    states: Mapping[int, Mapping[str, str]],
    events: Mapping[int, Any],
    point: Point,
) -> ValueFinding:
    rank, event = next(iter(events.items()))
    where = tell_apart({r: state.get(apart[0]) for r, state in states.items()})
    return ValueFinding(
        code="replicas_differ",
        message=f"the buffers {list_names(apart)} are not equal at step {point[0]}, where the "
        f"model is evaluated: {where}",
        ranks=group.ranks,
        rank=rank,
        place=event.place,
        hint="broadcast the buffers before the evaluation, leave `broadcast_buffers` on, or use "
        "SyncBatchNorm",
        turn=point[0],
        error=False,
        name=apart[0],
    )


def find_unreduced(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield a step of an optimizer at which FSDP2 holds whole gradients that it has not reduced."""
    del roles
    for rank, record in records.items():
        for each in record.of_kind("unreduced"):
            turn, place, names = each.details
            who = [r for r, other in records.items() if any(other.of_kind("unreduced"))]
            yield ValueFinding(
                code="gradients_differ",
                message=f"the optimizer steps at step {turn} while FSDP holds gradients of "
                f"{list_names(names)} that nothing has reduced: those of the microbatches since "
                "the last reduction are lost",
                ranks=tuple(who),
                rank=rank,
                place=place,
                hint="let the last microbatch before a step synchronise: "
                "`model.set_requires_gradient_sync(micro == last)`",
                turn=turn,
                name=names[0],
            )
            return
