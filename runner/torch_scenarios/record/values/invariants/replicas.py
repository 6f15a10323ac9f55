"""Replicas: equal weights at each use, equal gradients at the optimizer.

Weights that something makes replicas (DDP, a DTensor's Replicate, a collective of their gradients)
are equal on all ranks of the group wherever a module is called and wherever an optimizer steps.
The message names the first point at which they are not, and what wrote them: another learning rate,
a state that one rank loads, a limit by the rank's number, a step that some ranks leave out.

Weights may differ for a while and be right. Where each rank perturbs them by its own gradient and
puts them back (SAM), they are equal again at the step. Where one rank steps a parameter and sends
it (ZeRO), they count at calls alone; where they are averaged now and then (local SGD), at the
averages alone. In a group that is known by its behaviour, and by no wrapper, a later use at which
they are equal makes an earlier difference right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch_scenarios.record.values.format.event import BackwardPass, ModuleLoad, OptimizerLoad
from torch_scenarios.record.values.format.record import OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import (
    Cause,
    Records,
    ValueFinding,
    list_by_rank,
    list_names,
    part_ranks,
    tell_apart,
    tell_line,
)
from torch_scenarios.record.values.invariants.gradients import (
    DECIDE_ALIKE,
    find_gradients_apart,
)
from torch_scenarios.record.values.invariants.optimizers import (
    UNLIKE_STATES,
    tell_unlike_steps,
)
from torch_scenarios.record.values.invariants.scales import find_scales_apart
from torch_scenarios.record.values.invariants.start import (
    COPY_LATER,
    find_equalizing_line,
    find_lone_load,
    find_stepped_copies,
    tell_beginning,
)
from torch_scenarios.record.values.invariants.weights import (
    Point,
    is_put_back_roundly,
    join_timelines,
    order_of_point,
)
from torch_scenarios.record.values.roles import EQUALIZING, ReplicaGroup, Roles
from torch_scenarios.verdict.finding import ranks_text


def find_replicas_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield replicas whose weights are not equal any more, or whose gradients are not."""
    begun = [tell_beginning(records, group) for group in roles.unlike]
    yield from begun
    skips = [*_find_lone_skips(records, roles)]
    yield from skips
    # unlike copies for an optimizer, and steps that some ranks skip, make later weights unlike
    causes = [*skips, *(each for each in begun if each.cause is Cause.EARLY_COPIES)]
    for group in roles.replicas:
        for found in _find_first_difference(records, group):
            if not any({*found.ranks} <= {*e.ranks} and e.turn <= found.turn for e in causes):
                yield found
    yield from find_scales_apart(records, roles)


def _find_lone_skips(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield ranks that hold parts of one model, of which some leave a step of an optimizer out."""
    for ranks in roles.split:
        own = {rank: _list_stepped(records[rank]) for rank in ranks}
        if len({len(each) for each in own.values()}) != 1:
            continue
        for number, together in enumerate(zip(*own.values(), strict=True)):
            idle = [rank for rank, step in zip(own, together, strict=True) if step is None]
            done = [(r, step) for r, step in zip(own, together, strict=True) if step is not None]
            if not idle or not done:
                continue
            rank, step = done[0]
            verb = "leave" if len(idle) > 1 else "leaves"
            yield ValueFinding(
                code="replicas_differ",
                message=f"{ranks_text(idle)} {verb} the step of the optimizer out that the other "
                f"ranks do behind backward pass {number} (step {step.turn}), and these ranks hold "
                "parts of one model",
                ranks=ranks,
                rank=rank,
                place=step.place,
                hint=DECIDE_ALIKE,
                turn=step.turn,
            )
            return


def _list_stepped(record: ValueRecord) -> list[OptimizerStep | None]:
    """Return the step that follows each backward pass before the next one, if one does."""
    passes = [each.at for each in record.of(BackwardPass)]
    ends = [*passes[1:], float("inf")]
    return [
        next((step for step in record.steps if began < step.at < end), None)
        for began, end in zip(passes, ends, strict=True)
    ]


def _find_first_difference(records: Records, group: ReplicaGroup) -> Iterator[ValueFinding]:
    """Yield the first point in time at which replicas of a group are not equal, if there is one."""
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
        if kind == 0 and apart and _are_put_back(records, group, apart, point):
            continue
        if kind == 1 and apart and is_put_back_roundly(records, apart, events):
            yield _tell_rounding(group, apart, events, point)
            return
        gradients = kind == 1 and group.gradients and not apart
        found_apart = find_gradients_apart(records, group, states, events) if gradients else None
        if apart:
            found_apart = _replicas_differ(records, group, apart, states, events, point)
        if found_apart is not None:
            if group.surely or not _meet_again(records, group, [found_apart.name], point):
                yield found_apart
            return
        if kind == 0 and group.buffers and not next(iter(events.values())).training:
            apart = [] if group.keeps_buffers else _list_unequal(states, group.buffers)
            if apart:
                yield _buffers_differ(group, apart, states, events, point)
                return


def _is_judged(group: ReplicaGroup, averaged: set[int] | None, point: Point) -> bool:
    """Whether the weights of a group must be equal at a point."""
    turn, kind, *_ = point
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
    apart = _list_unequal(states, group.names)
    return _list_used(records, apart, events) if group.only_used else apart


def _list_used(records: Records, names: list[str], events: Mapping[int, Any]) -> list[str]:
    """Return the parameters of the module that every rank calls here."""

    def is_called(rank: int, name: str, event: Any) -> bool:
        record = records[rank]
        number = record.names[name]
        if any(number in step.gradients for step in record.steps[:3]):
            return bool(event.training)
        return bool(record.parameters[number].root == event.root)

    return [name for name in names if all(is_called(r, name, e) for r, e in events.items())]


def _are_put_back(records: Records, group: ReplicaGroup, names: list[str], point: Point) -> bool:
    """Whether weights that differ at a call are equal at the step after it: they are put back.

    As where each rank perturbs them by its own gradient, and computes another one there.
    """
    for at, found in join_timelines(records, group.ranks):
        if at[1] == 1 and at[0] == point[0]:
            apart = _list_unequal({r: state for r, (_, state) in found.items()}, set(names))
            events = {r: event for r, (event, _) in found.items()}
            return not apart or is_put_back_roundly(records, apart, events)
    return False


def _tell_rounding(
    group: ReplicaGroup, apart: list[str], events: Mapping[int, Any], point: Point
) -> ValueFinding:
    rank, event = next(iter(events.items()))
    return ValueFinding(
        code="replicas_differ",
        message=f"{list_names(apart)} {'differ' if len(apart) > 1 else 'differs'} by rounding at "
        f"step {point[0]}: each rank writes a perturbation of its own and takes it off again, and "
        "nothing makes the last bits equal again",
        ranks=group.ranks,
        rank=rank,
        place=event.place,
        hint="keep the weights and copy them back in place of a subtraction",
        turn=point[0],
        error=False,
        name=apart[0],
    )


def _meet_again(records: Records, group: ReplicaGroup, names: list[str], point: Point) -> bool:
    """Whether weights that differ are equal at a later use: they differ on purpose in between."""
    differed = False
    for at, found in join_timelines(records, group.ranks):
        if order_of_point(at) < order_of_point(point):
            continue
        apart = _list_unequal({rank: state for rank, (_, state) in found.items()}, set(names))
        if differed and at[1] == 0 and not apart:
            return True
        differed = differed or bool(apart)
    return False


def _find_averaged(records: Records, group: ReplicaGroup) -> set[int]:
    """Return the turns before which the weights of a group were sent over it.

    Where they are not the same turns on each rank (each does as many steps as it has rows), there
    is no turn at which the weights are comparable.
    """
    found = {
        frozenset(_averaged_on(records[rank], group)) for rank in group.ranks if rank in records
    }
    return set(found.pop()) if len(found) == 1 else set()


def _averaged_on(record: ValueRecord, group: ReplicaGroup) -> set[int]:
    found: set[int] = set()
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


def _list_unequal(states: Mapping[int, Mapping[str, str]], names: set[str]) -> list[str]:
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
    """Return the finding that weights which are to be equal on some ranks are not.

    `apart` names the parameters, `states` holds their digests by rank, and `events` what each rank
    did last. The line that is named is, from the sure to the vague: that of a state which one rank
    alone loads, of optimizers that step unlike, of gradients that nothing sums, of a write by hand.
    """
    turn, kind, *_ = point
    held = {rank: state.get(apart[0]) for rank, state in states.items()}
    where = tell_apart(held)
    when = f"after step {turn}" if kind == 2 else f"at step {turn}"
    rank = part_ranks(held)[-1][0]
    place = _find_write_line(group, records[rank], apart[0], events[rank])
    loaded = find_lone_load(records, group.ranks, turn) if kind == 0 else None
    if loaded:
        rank, place = loaded
    hint = (
        "let every rank do the same to its weights: broadcast them once at the start, synchronise "
        "each gradient, and write a weight by nothing that differs between ranks"
    )
    because = ""
    if group.intended:
        hint = "average them with the weights, unless each rank is to have its own"
    steps = {r: e for r, e in events.items() if isinstance(e, OptimizerStep)}
    found = None
    if kind == 2:
        found = tell_unlike_steps(records, apart[0], steps)
        found = found or _tell_unsummed(records, group, apart[0], steps)
        reloaded = find_lone_load(records, group.ranks, turn, OptimizerLoad)
        if reloaded and found and found[0] == UNLIKE_STATES:
            rank, place = reloaded
            words = f"{ranks_text([rank])} loads a state of the optimizer that the others do not"
            found = words, "load it on every rank or on none: decide by what all have reduced"
    elif chosen := _find_loads(records, apart[0], events):
        place = chosen[rank]
        found = f"each rank loads a state{tell_line(records[rank], place)}", CHOOSE_ALIKE
    elif loaded:
        found = f"{ranks_text([rank])} loads a state that the others do not load", LOAD_ALIKE
    elif turn or kind == 1:
        found = _tell_write(records, apart[0], events)
        writer = _find_own_copies(records, group, events)
        writer = writer or (_find_owner(records, group, apart[0], events) if not found else None)
        writer = writer or (_find_other_gradients(records, apart[0], events) if not found else None)
        if writer is not None:
            rank, place, *_ = writer
            found = writer[2:]
    if found is not None:
        because, hint = f"; {found[0]}", found[1]
    return ValueFinding(
        code="replicas_differ",
        message=f"{list_names(apart)} {'are' if len(apart) > 1 else 'is'} not equal any more "
        f"{when}: {where}, and {group.because} makes "
        f"{'them replicas' if len(apart) > 1 else 'it a replica'}{because}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        hint=hint,
        turn=turn,
        error=not group.intended,
        name=apart[0],
    )


def _tell_unsummed(
    records: Records, group: ReplicaGroup, name: str, steps: Mapping[int, OptimizerStep]
) -> tuple[str, str] | None:
    """Say that equal weights have other gradients on ranks that hold parts of one model."""
    own = {step.gradients.get(records[rank].names.get(name, -1)) for rank, step in steps.items()}
    if not group.hint or None in own or len(own) < 2:
        return None
    words = "each rank has another gradient for it at this step, and nothing has summed them"
    return words, group.hint


def _find_owner(
    records: Records, group: ReplicaGroup, name: str, events: Mapping[int, Any]
) -> tuple[int, int, str, str] | None:
    """Return the one rank that steps a weight, where nothing sends it to the others since.

    The line is that of a call that sends other weights after the step, or of the step.
    """
    steps = {
        rank: [
            step
            for step in records[rank].steps
            if step.at < event.at and records[rank].names.get(name, -1) in step.gradients
        ]
        for rank, event in events.items()
    }
    owners = [rank for rank, own in steps.items() if own]
    if len(owners) != 1 or isinstance(events[owners[0]], OptimizerStep):
        return None
    rank = owners[0]
    record, step = records[rank], steps[rank][-1]
    sent = [
        call
        for call in record.calls
        if step.at < call.at < events[rank].at and set(call.ranks) >= set(group.ranks)
        if any(each.carries == "weight" for each in call.tensors)
    ]
    words = f"{ranks_text([rank])} alone steps it{tell_line(record, step.place)}, and nothing "
    words += "sends it to the others since"
    hint = "send each weight after the step, from the rank that steps it: go through the whole list"
    if sent:
        words += ", though this call sends others"
        hint += ", what a division by the ranks leaves over at its end, too"
    return rank, sent[-1].place if sent else step.place, words, hint


def _find_own_copies(
    records: Records, group: ReplicaGroup, events: Mapping[int, Any]
) -> tuple[int, int, str, str] | None:
    """Return where an optimizer steps copies of the weights in their place, unequal from the start.

    Copies in single precision, or in one flat piece: the script writes them back behind the step.
    """
    rank, event = next(iter(events.items()))
    record = records[rank]
    step = find_stepped_copies(records, (*events,), group.names)
    if step is None or step.at > event.at:
        return None
    words = f"the optimizer steps copies of the weights{tell_line(record, step.place)}, which the "
    words += "script writes back, and the copies of the ranks differ from the first step on"
    line = find_equalizing_line(record, group.names)
    if line >= 0:
        words += f": they were made before a call{tell_line(record, line)} made the weights equal"
    return rank, line if line >= 0 else step.place, words, COPY_LATER


def _find_loads(records: Records, name: str, events: Mapping[int, Any]) -> dict[int, int]:
    """Return the line at which each rank loads a state between its last step and a call.

    Empty where a rank loads none, or has other weights for another reason.
    """
    found = {}
    for rank, event in events.items():
        began = max((each.at for each in records[rank].steps if each.at < event.at), default=-1)
        own = [e for e in records[rank].of(ModuleLoad) if began < e.at < event.at]
        if not own or isinstance(event, OptimizerStep):
            return {}
        found[rank] = own[-1].place
    written = [r for r, e in events.items() if records[r].names.get(name, -1) in e.changed]
    return found if written else {}


def _find_other_gradients(
    records: Records, name: str, events: Mapping[int, Any]
) -> tuple[int, int, str, str] | None:
    """Return the call that reduces gradients before ranks step a weight with another one each.

    As where one rank alone has the sum, or nothing sends it back to some of them.
    """
    gradients: dict[int, str | None] = {}
    lines: dict[int, list[int]] = {}
    for rank, event in events.items():
        record = records[rank]
        number = record.names.get(name, -1)
        steps = [each for each in record.steps if each.at < event.at]
        if not steps or steps[-1].gradients.get(number) is None:
            return None
        gradients[rank] = steps[-1].gradients[number]
        began = steps[-2].at if len(steps) > 1 else -1
        lines[rank] = [
            call.place
            for call in record.calls
            if began < call.at < steps[-1].at
            and any(t.carries == "gradient" and number in t.parameters for t in call.tensors)
        ]
    if len({*gradients.values()}) < 2:
        return None
    rank = part_ranks(gradients)[-1][0]
    if not lines[rank]:
        return None
    words = "the ranks step it with other gradients, though this call has reduced them"
    hint = (
        "give every rank that steps a weight its reduced gradient: `all_reduce`, or a `reduce` and "
        "a `broadcast` in which each rank of the group takes part"
    )
    return rank, lines[rank][-1], words, hint


#: what to do about states that each rank chooses
CHOOSE_ALIKE = (
    "load one state on all ranks: choose it by a score that all ranks have reduced, or broadcast "
    "the weights after it"
)
#: what to do about a state that some ranks load
LOAD_ALIKE = "load it on every rank, or broadcast the weights after it"


def _tell_write(records: Records, name: str, events: Mapping[int, Any]) -> tuple[str, str] | None:
    """Say that something other than an optimizer has made weights unequal, and what to do."""
    counts = {r: sum(s.at < e.at for s in records[r].steps) for r, e in events.items()}
    if len(set(counts.values())) > 1:
        shown = list_by_rank({rank: str(count) for rank, count in counts.items()})
        hint = "let every rank do as many steps of the optimizer as the others"
        return f"the steps that an optimizer has done are {shown}", hint
    who = [r for r, e in events.items() if records[r].names.get(name, -1) in e.changed]
    if not who:
        return None
    rank, event = who[0], events[who[0]]
    before: list[Any] = [e for e in records[rank].steps if e.at < event.at]
    if isinstance(event, OptimizerStep):
        before = [e for e in records[rank].forwards if e.at < event.at]
    since = tell_line(records[rank], before[-1].place) if before else ""
    what = "the call of the model" if isinstance(event, OptimizerStep) else "the step"
    verb = "writes" if len(who) == 1 else "write"
    words = f"{ranks_text(who)} {verb} into {'it' if len(who) == 1 else 'them'} after {what} before"
    hint = "write the same into the weights of every rank (a limit, a mask, an average), or "
    hint += "broadcast them after it"
    return f"{words}{since}, and no optimizer does", hint


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
