"""Gradients at the optimizer: equal on the ranks of a replica group, or what made them differ.

Equal weights that meet unequal gradients at a step are unequal weights after it: a `no_sync` that
covers the last microbatch, a parameter outside of DDP, a clip by each rank's own norm behind the
reduction. The message names the last point where the gradients were equal, and what came after:
another backward pass, a write, a clip; else the collective that carried them and did not make
them equal. A rank that leaves a step out has gradients of another batch: this is the message then.

Not compared are groups that average weights in place of gradients, and weights that differ at the
step: their gradients may, too. A gradient that some ranks have and others have not is a warning:
a parameter may be used on some ranks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    BackwardResult,
    CommunicationHook,
    DataParallelWrapper,
    GradientChange,
    LateParameter,
    NormClip,
    UnreducedGradients,
    ValueClip,
)
from torch_scenarios.record.values.format.record import (
    CarryingCall,
    Kind,
    OptimizerStep,
    ValueRecord,
)
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    list_by_rank,
    list_names,
    tell_apart,
    tell_call,
    tell_line,
)
from torch_scenarios.record.values.roles import EQUALIZING, Ranks, ReplicaGroup, Roles
from torch_scenarios.record.values.source import (
    find_gradient_writes,
    find_unread_copy,
    names_attribute,
)
from torch_scenarios.verdict.finding import ranks_text

#: by what a script says that DDP is to reduce gradients
SYNC_FLAG = "require_backward_grad_sync"
#: what to do about ranks of which some step
DECIDE_ALIKE = (
    "let all ranks decide the same way whether they step: reduce the flag first, as by "
    "`dist.all_reduce(finite, op=dist.ReduceOp.MIN)`"
)


def find_gradients_apart(
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
    if apart:
        return _tell_apart(records, group, events, apart, hashes)
    if written := _find_written(records, group, missing, events, hashes):
        return written
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


def _tell_apart(
    records: Records,
    group: ReplicaGroup,
    events: Mapping[int, OptimizerStep],
    apart: list[str],
    hashes: Mapping[str, Mapping[int, str | None]],
) -> ValueFinding:
    """Return the finding that replicas step with unlike gradients, and what left them so."""
    if written := _find_written(records, group, apart, events, hashes):
        return written
    rank, step = next(iter(events.items()))
    record = records[rank]
    reduced = _find_reduction(records, apart[0], events)
    many = len(apart) > 1
    how = f"so nothing has synchronised {'them' if many else 'it'}"
    hint = (
        "reduce every gradient over the data-parallel ranks before the optimizer steps: call the "
        "model through DDP, leave `no_sync` with the last microbatch, or all_reduce `p.grad` by "
        "hand"
    )
    if reduced is not None:
        name, line = tell_call(reduced.operation), tell_line(record, reduced.place)
        how = f"though `{name}`{line} carries {'them' if many else 'it'}"
        hint = "reduce the gradient itself, over all ranks that hold the replica, and wait for it"
        if reduced.operation not in EQUALIZING:
            how += ": its result is not on every rank"
        elif not set(group.ranks) <= set(reduced.ranks):
            how += f": over {ranks_text(reduced.ranks)} alone"
    place = step.place
    if reduced is None and (cause := _tell_wrapper(records, group, apart, events)):
        how, hint, place = cause
    return ValueFinding(
        code="gradients_differ",
        message=f"{_tell_where(step, apart, hashes)}, {how}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        hint=hint,
        turn=step.turn,
        name=apart[0],
    )


def _tell_wrapper(
    records: Records,
    group: ReplicaGroup,
    apart: list[str],
    events: Mapping[int, OptimizerStep],
) -> tuple[str, str, int] | None:
    """Say why a wrapper has not made gradients equal, what to do, and at which line; None if not.

    They are not in its list, the model is called past it, or its hook gives each rank another
    result.
    """
    rank, step = next(iter(events.items()))
    record = records[rank]
    if unlisted := _tell_unlisted(record, apart):
        how, hint, place = unlisted
        return how, hint, step.place if place < 0 else place
    wrappers = [each.root for each in record.of(DataParallelWrapper) if each.ranks == group.ranks]
    if not wrappers:
        copied = _tell_unread_copy(record, group.ranks, step)
        return copied or _tell_left_out(record, group.ranks, apart, step)
    since = _step_before(record, step)
    calls = [e for e in record.forwards if since < e.at < step.at and e.training]
    if calls and not any(each.root in wrappers for each in calls):
        how = "as the model is called past DistributedDataParallel, which reduces what it has "
        hint = "call the wrapped model itself: let its `forward` choose by an argument what is "
        hint += "computed, in place of a call of `model.module` or of a part of it"
        return f"{how}called itself", hint, calls[-1].place
    hooks = [e.name for e in record.of(CommunicationHook) if e.name != "Join"]
    if calls and hooks:
        inside = [
            c.place for c in record.calls if since < c.at < step.at and c.ranks == group.ranks
        ]
        how = f"though the hook `{hooks[0]}` reduces them: what it returns differs between ranks"
        hint = "let the hook compute one result on all ranks: what it takes from a rank's own "
        hint += "gradient (a scale, a choice of elements) has to be reduced, too"
        return how, hint, inside[-1] if inside else step.place
    return None


def _tell_unread_copy(
    record: ValueRecord, ranks: Ranks, step: OptimizerStep
) -> tuple[str, str, int] | None:
    """Say that a call reduces a copy of each gradient, and that nothing reads the copy after it."""
    since = _step_before(record, step)
    for call in record.calls:
        is_own = since < call.at < step.at and {*ranks} <= {*call.ranks}
        if is_own and (name := find_unread_copy(record, call.place)):
            return (
                f"as this call reduces `{name}`, a copy that nothing reads after it",
                f"put the sum back: `p.grad.copy_({name})`, or reduce `p.grad` itself",
                call.place,
            )
    return None


def _tell_left_out(
    record: ValueRecord, ranks: Ranks, apart: list[str], step: OptimizerStep
) -> tuple[str, str, int] | None:
    """Say that calls of the script reduce other gradients of the same step of an optimizer."""
    since, stepped = _step_before(record, step), {*step.gradients}
    others = [
        call
        for call in record.calls
        if since < call.at < step.at
        and {*ranks} <= {*call.ranks}
        and any(e.carries == "gradient" and {*e.parameters} & stepped for e in call.tensors)
    ]
    if not others:
        return None
    how = f"as {'they are' if len(apart) > 1 else 'it is'} left out where others of the same step "
    how += f"are reduced{tell_line(record, others[-1].place)}"
    hint = "reduce the gradient of every parameter that the optimizer steps: leave none out by its "
    return how, f"{hint}name, its shape or the module that it is in", step.place


def _tell_unlisted(record: ValueRecord, apart: list[str]) -> tuple[str, str, int] | None:
    """Say that DDP or FSDP does not have parameters in its list; None where it has them.

    They came into the model after it, or were frozen then. A late one may have taken the place of
    another, for whose gradient a bucket waits. The line is that at which a late one was made, or
    none.
    """
    late = {
        record.parameters[e.parameter].name: e
        for e in record.of(LateParameter)
        if e.owner != "optimizer"
    }
    them = "them" if len(apart) > 1 else "it"
    if late and {*apart} <= {*late}:
        first = late[apart[0]]
        return (
            f"as {first.owner} took its list before, and does not reduce {them}",
            "make the whole model before it is wrapped, or wrap it after the change",
            record.parameters[first.parameter].made,
        )
    if not record.of(DataParallelWrapper):
        return None
    if late:
        how = f"and `{next(iter(late))}` came into the model after DistributedDataParallel took "
        how += "its list: "
        how += "what it took the place of has no gradient, and its bucket is not reduced"
        return how, "make the whole model, and tie its weights, before it is wrapped", -1
    if all(record.parameters[record.names[name]].frozen for name in apart):
        how = "as they were frozen when DistributedDataParallel took its list, and it does not "
        hint = "wrap the model again when more of it is trained, or before a part is frozen"
        return f"{how}reduce {them}", hint, -1
    return None


def _tell_where(
    step: OptimizerStep, apart: list[str], hashes: Mapping[str, Mapping[int, str | None]]
) -> str:
    """Say whose gradients differ at a step."""
    count = max(len(hashes), len(step.gradients))
    who = tell_apart(hashes[apart[0]])
    every = "all gradients" if len(apart) == count > 1 else f"{len(apart)} of {count} gradients"
    return (
        f"equal weights meet unequal gradients at step {step.turn}: {who} for {list_names(apart)} "
        f"({every})"
    )


class Agreement(Struct, frozen=True):
    """Where gradients were equal on all ranks last: behind a backward pass, or a collective.

    `at` is the event of each rank, `operation` the collective's, `last` whether no backward pass
    has come after it.
    """

    at: dict[int, int]
    place: int
    last: bool
    operation: str = ""

    @property
    def what(self) -> str:
        """What they were equal after, in words."""
        return f"`{tell_call(self.operation)}`" if self.operation else "the backward pass"


def _find_written(
    records: Records,
    group: ReplicaGroup,
    apart: list[str],
    events: Mapping[int, OptimizerStep],
    hashes: Mapping[str, Mapping[int, str | None]],
) -> ValueFinding | None:
    """Return that something has written gradients that were equal before."""
    agreed = _find_agreement(records, apart, events, hashes)
    if agreed is None:
        return None
    rank, step = next(iter(events.items()))
    record = records[rank]
    them = "them" if len(apart) > 1 else "it"
    if agreed.last:
        place, how, hint = _find_writer(records, agreed, events)
    else:
        added = [e for e in record.of(BackwardResult) if agreed.at[rank] < e.at < step.at]
        place = added[-1].place
        how = f"a later backward pass adds gradients that nothing has synchronised to {them}"
        hint = (
            "reduce once, after the last backward pass of a step: leave `no_sync` before that "
            "pass, add the losses up and call `backward` once, or move the reduction behind it"
        )
        if record.of(DataParallelWrapper) and names_attribute(record, place, SYNC_FLAG):
            hint = (
                f"set `{SYNC_FLAG}` before the forward pass of each microbatch: "
                "DistributedDataParallel reads it there, and the backward pass does so"
            )
    return ValueFinding(
        code="gradients_differ",
        message=f"the gradients of {list_names(apart)} are equal on all ranks after {agreed.what}"
        f"{tell_line(record, agreed.place)}, and unequal at step {step.turn}: {how}",
        ranks=group.ranks,
        rank=rank,
        place=place,
        frames=() if place != step.place else find_gradient_writes(record, agreed.place, place),
        hint=hint,
        turn=step.turn,
        name=apart[0],
    )


def _find_agreement(
    records: Records,
    apart: list[str],
    events: Mapping[int, OptimizerStep],
    hashes: Mapping[str, Mapping[int, str | None]],
) -> Agreement | None:
    """Return where gradients that differ at a step were equal last, after the step before."""
    since = {rank: _step_before(records[rank], step) for rank, step in events.items()}
    passes = {
        rank: [e for e in records[rank].of(BackwardResult) if since[rank] < e.at < step.at]
        for rank, step in events.items()
    }
    if len({len(each) for each in passes.values()}) != 1 or not all(passes.values()):
        return None
    kept = {rank: _find_kept(records[rank], step) for rank, step in events.items()}
    found = []
    for at, together in enumerate(zip(*passes.values(), strict=True)):
        is_last = at == len(passes[next(iter(passes))]) - 1
        alike = len({each.gradients for each in together}) == 1
        if is_last:
            alike = all(_were_equal(records, name, kept, hashes[name]) for name in apart)
        if alike:
            places = {rank: each.at for rank, each in zip(passes, together, strict=True)}
            found.append(Agreement(places, together[0].place, is_last))
    calls = {
        rank: call
        for rank, step in events.items()
        if (call := _find_last_reduction(records[rank], apart[0], since[rank], step.at)) is not None
    }
    results = {call.results for call in calls.values()}
    if len(calls) == len(events) and len(results) == 1 and all(results):
        places = {rank: call.at for rank, call in calls.items()}
        first = next(iter(calls.values()))
        is_last = all(calls[r].at > passes[r][-1].at for r in calls)
        found.append(Agreement(places, first.place, is_last, first.operation))
    rank = next(iter(events))
    return max(found, key=lambda each: each.at[rank], default=None)


def _step_before(record: ValueRecord, step: OptimizerStep) -> int:
    """Return the event of the same optimizer's step before."""
    own = [each.at for each in record.steps if each.optimizer == step.optimizer]
    return max((at for at in own if at < step.at), default=-1)


def _were_equal(
    records: Records,
    name: str,
    kept: Mapping[int, GradientChange | None],
    hashes: Mapping[int, str | None],
) -> bool:
    """Whether the last backward pass left one gradient of a parameter on all ranks."""
    left = set()
    for rank, found in kept.items():
        if found is None:
            return False
        left.add(dict(found.left).get(records[rank].names[name], hashes[rank]))
    return len(left) == 1 and None not in left


def _find_kept(record: ValueRecord, step: OptimizerStep) -> GradientChange | None:
    """Return what a step found of the gradients that the backward pass had left."""
    own = [e for e in record.of(GradientChange) if _step_before(record, step) < e.at < step.at]
    return own[-1] if own else None


def _find_last_reduction(
    record: ValueRecord, name: str, since: int, until: int
) -> CarryingCall | None:
    """Return the last collective between two events that carried a parameter's gradient."""
    number = record.names.get(name, -1)
    own = [
        call
        for call in record.calls
        if since < call.at < until
        and any(t.carries == "gradient" and number in t.parameters for t in call.tensors)
    ]
    return own[-1] if own else None


def _find_reduction(
    records: Records, name: str, events: Mapping[int, OptimizerStep]
) -> CarryingCall | None:
    """Return a collective of this step that carries a gradient and has not made it equal."""
    for rank, step in events.items():
        since = _step_before(records[rank], step)
        if call := _find_last_reduction(records[rank], name, since, step.at):
            return call
    return None


#: what to do about a write that differs between ranks
WRITE_ALIKE = (
    "let every rank do the same to a gradient that has been reduced (one limit, one scale, one "
    "seed, one mask), or do it before the reduction"
)


def _find_writer(
    records: Records, agreed: Agreement, events: Mapping[int, OptimizerStep]
) -> tuple[int, str, str]:
    """Return the line that wrote gradients apart, what it did, and what to do."""
    rank, step = next(iter(events.items()))
    if clips := _find_last(records, NormClip, agreed, events):
        scales = {r: min(1.0, e.most / (e.norm + 1e-6)) for r, e in clips.items()}
        if max(scales.values()) - min(scales.values()) > 1e-5 * max(scales.values()):
            shown = list_by_rank(
                {r: f"{e.most:g} at a norm of {e.norm:.4g}" for r, e in clips.items()}
            )
            how = f"`clip_grad_norm_` scales them by another number on each rank: to {shown}"
            return clips[rank].place, how, "clip by one `max_norm`, and by one norm, on all ranks"
    limits = _find_last(records, ValueClip, agreed, events)
    if len({each.most for each in limits.values()}) > 1:
        shown = list_by_rank({r: f"{each.most:g}" for r, each in limits.items()})
        how = f"`clip_grad_value_` limits them by another value on each rank: {shown}"
        return limits[rank].place, how, "clip by one value on all ranks"
    return step.place, _tell_factors(records, agreed, events), WRITE_ALIKE


def _find_last(
    records: Records, kind: type[Kind], agreed: Agreement, events: Mapping[int, OptimizerStep]
) -> dict[int, Kind]:
    """Return each rank's last event of a kind before its step.

    Empty where a rank has none since the gradients agreed.
    """
    found = {
        rank: last
        for rank, step in events.items()
        if (last := records[rank].find_last(kind, agreed.at[rank], step.at)) is not None
    }
    return found if len(found) == len(events) else {}


def _tell_factors(records: Records, agreed: Agreement, events: Mapping[int, OptimizerStep]) -> str:
    """Say what was done to gradients after they were equal, as far as that is known."""
    kept = {rank: _find_kept(records[rank], step) for rank, step in events.items()}
    if not agreed.operation:
        factors = {
            rank: 1.0 if not found.left else found.factor
            for rank, found in kept.items()
            if found is not None
        }
        known = {rank: each for rank, each in factors.items() if each is not None}
        if len(known) == len(events) and len(set(known.values())) > 1:
            shown = list_by_rank({rank: f"{each + 0.0:.4g}" for rank, each in known.items()})
            return f"each rank multiplies them by a number of its own: {shown}"
        idle = [rank for rank, found in kept.items() if found is not None and not found.left]
        if idle and len(idle) < len(events):
            others = [rank for rank in events if rank not in idle]
            verb = "writes" if len(others) == 1 else "write"
            return f"{ranks_text(others)} {verb} into them since, {ranks_text(idle)} not"
    return "what is written into them since is not the same on each rank"


def _find_left_step(
    records: Records, group: ReplicaGroup, events: Mapping[int, OptimizerStep]
) -> ValueFinding | None:
    """Return that ranks have done a step that others have left out: they are out of step since."""
    passes = {
        rank: sum(each.at < step.at for each in records[rank].of(BackwardPass))
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
        hint=DECIDE_ALIKE,
        turn=turn,
    )


def _is_accumulated(record: ValueRecord) -> bool:
    """Whether several backward passes are made for a step: then their number says nothing."""
    if not record.steps:
        return False
    return sum(each.at < record.steps[0].at for each in record.of(BackwardPass)) != 1


def find_unreduced(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield a step of an optimizer at which FSDP2 holds whole gradients that it has not reduced."""
    del roles
    for rank, record in records.items():
        for each in record.of(UnreducedGradients):
            who = [r for r, other in records.items() if other.of(UnreducedGradients)]
            yield ValueFinding(
                code="gradients_differ",
                message=f"the optimizer steps at step {each.turn} while FSDP holds gradients of "
                f"{list_names(each.names)} that nothing has reduced: those of the microbatches "
                "since the last reduction are lost",
                ranks=tuple(who),
                rank=rank,
                place=each.place,
                hint="let the last microbatch before a step synchronise: "
                "`model.set_requires_gradient_sync(micro == last)`",
                turn=each.turn,
                name=each.names[0],
            )
            return
