"""The norm by which gradients are clipped is that of the whole model.

Ranks that hold parts of one model (shards, tensor-parallel parts, what an owner steps) must scale
their gradients by one number. `clip_grad_norm_` on a rank's own shards takes the norm of these:
each part is scaled by another number, and the step has another direction than one process'. So
must replicas whose gradients are reduced: a clip before the reduction takes each rank's own norm.
A clip by hand shows where a rank's gradients at the step are one number times what the backward
pass left, another one on each rank.

Quiet are clips that clip nothing (the norms are below the limit), norms of DTensors (they are of
all ranks), replicas that average weights now and then and train alone in between, and owners
each of which clips a whole module by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    FlatWrapper,
    GradientChange,
    NormClip,
    ReducedChange,
    ShardChange,
    UnitGather,
)
from torch_scenarios.record.values.format.record import OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import (
    Ranks,
    Roles,
    find_first_use,
    find_owners,
    find_scattering_groups,
    find_stages,
)
from torch_scenarios.record.values.source import find_gradient_writes

#: relative difference of two norms that rounding does not make
NORMS_APART = 1e-5
#: relative difference of two numbers that gradients are multiplied by
SCALES_APART = 1e-3

HINT = (
    "take the norm of the whole model: sum the squares over its ranks and clip by the root of "
    "that; reduce gradients before they are clipped"
)


def find_local_norms(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield clipping by norms that differ on ranks of one model, where it clips."""
    found = [*_find_norms(records, roles)]
    yield from found or _find_lone_scales(records, roles)


def _find_norms(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield the finding that each rank clips by the norm of the gradients that it holds.

    No norm is judged that torch has computed over all shards, that is not finite, or that clips
    nothing.
    """
    clips = {rank: record.of(NormClip) for rank, record in records.items()}
    owners = {ranks for ranks, *_ in find_owners(records)}
    for ranks, names, what in _norm_groups(records, roles):
        lists = {
            rank: [e for e in clips[rank] if _clips_any(records[rank], e.parameters, names)]
            for rank in ranks
            if clips.get(rank)
        }
        if len(lists) < 2:
            continue
        for together in zip(*lists.values(), strict=False):
            norms = dict(zip(lists, (each.norm for each in together), strict=True))
            most = together[0].most
            if any(each.is_global for each in together) or not all(
                map(math.isfinite, norms.values())
            ):
                continue
            low, high = min(norms.values()), max(norms.values())
            if high - low <= NORMS_APART * high or not math.isfinite(most) or high <= most:
                continue
            clipped = {rank: each.parameters for rank, each in zip(lists, together, strict=True)}
            if ranks in owners and _are_modules(records, clipped):
                continue
            rank = next(iter(norms))
            shown = ", ".join(f"{norm:.4g} on rank {r}" for r, norm in [*norms.items()][:4])
            yield ValueFinding(
                code="norm_is_local",
                message=f"the gradients are clipped by another norm on each rank: {shown}, and "
                f"these ranks {what}",
                ranks=tuple(lists),
                rank=rank,
                place=together[0].place,
                hint=HINT,
                turn=together[0].turn,
            )
            return


def _clips_any(record: ValueRecord, numbers: Iterable[int], names: set[str] | None) -> bool:
    """Whether some parameters are clipped; None for any."""
    return names is None or any(record.parameters[number].name in names for number in numbers)


def _norm_groups(records: Records, roles: Roles) -> Iterator[tuple[Ranks, set[str] | None, str]]:
    """Yield ranks that clip by one norm, what they clip by it (None: anything), and why.

    Replicas whose weights alone are averaged, or sent, may each clip by a norm of its own.
    """
    parts = find_scattering_groups(records)
    parts |= {ranks for ranks in roles.model if ranks in roles.split or _share(records, ranks)}
    parts |= {e.ranks for r in records.values() for e in r.of(FlatWrapper)}
    parts |= {ranks for ranks, *_ in find_owners(records)}
    for ranks in sorted(parts):
        yield ranks, None, "hold parts of one model"
    for ranks in roles.data:
        own = [each for each in roles.replicas if each.ranks == ranks]
        names = {n for e in own if e.gradients and e.surely and not e.averages for n in e.names}
        yield ranks, names if own else None, "hold replicas of one model"


def _share(records: Records, ranks: Ranks) -> bool:
    """Whether ranks that exchange activations compute one model.

    A rank of a pipeline begins a backward pass with a gradient that another one has sent. Of
    others, some random weight that they train is one and the same on all ranks, and a collective
    carries its gradient. Two towers have neither: each compares what it has with what it gets, in
    a loss of its own.
    """
    own = [records[rank] for rank in ranks if rank in records]
    if any(not e.is_loss for record in own for e in record.of(BackwardPass)):
        return True
    if {*find_stages(records)} & {*ranks}:
        return False
    first = [find_first_use(record) for record in own]
    names = set.intersection(*map(set, first)) if first else set()
    sent = [(e, t) for e in own for c in e.calls for t in c.tensors if t.carries == "gradient"]
    reduced = {e.parameters[number].name for e, tensor in sent for number in tensor.parameters}
    return any(
        len({each[name] for each in first}) == 1
        for name in names & reduced
        if not (known := own[0].parameters[own[0].names[name]]).constant
        and any(step.gradients.get(known.number) is not None for step in own[0].steps[:3])
    )


class _Scale(Struct, frozen=True):
    """By what a rank multiplied its gradients between a backward pass and a step."""

    factor: float
    left: int
    step: int
    turn: int
    #: gradients that were multiplied by it; several where that is not known
    count: int


def _find_lone_scales(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield parts of one model whose gradients each rank makes smaller by a number of its own.

    A script that clips by hand. Norms change their proportion from step to step: others are left.
    """
    units = {e.ranks for r in records.values() for e in r.of(UnitGather)}
    parts = {each for each in units if len(each) > 1} | {*roles.split}
    for ranks in sorted(parts | {ranks for ranks, *_ in find_owners(records)}):
        scales = [dict(_list_scales(records[rank])) for rank in ranks if rank in records]
        if len(scales) < len(ranks):
            continue
        if all(each.count < 2 for own in scales for each in own.values()):
            continue  # one tensor alone may be clipped by itself
        stepped = {rank: {n for e in records[rank].steps for n in e.gradients} for rank in ranks}
        if ranks not in parts and _are_modules(records, stepped):
            continue
        common = sorted(set.intersection(*map(set, scales)))
        steps = [[own[at].factor for own in scales] for at in common]
        clips = [each for each in steps if all(0.0 < f <= 1.0 + SCALES_APART for f in each)]
        apart = [at for at, each in zip(common, steps, strict=True) if _spread(each)]
        ratios = [[own[at] / own[0] for own in steps] for at in range(len(ranks))]
        if len(clips) < len(steps) or not apart or not any(map(_spread, ratios)):
            continue
        first = {rank: own[apart[0]] for rank, own in zip(ranks, scales, strict=True)}
        yield _tell_scales(records, first)
        return


def _are_modules(records: Records, held: Mapping[int, Iterable[int]]) -> bool:
    """Whether what each rank has is the whole of one module, which may be clipped by itself."""
    for rank, numbers in held.items():
        known = records[rank].parameters
        names = {known[number].name for number in numbers}
        modules = [{name[:at] for at, c in enumerate(name, 1) if c == "."} for name in names]
        module = max(set.intersection(*modules), key=len, default="") if modules else ""
        whole = {e.name for e in known.values() if e.name.startswith(module) and not e.frozen}
        if not module or names != whole:
            return False
    return True


def _spread(numbers: list[float]) -> bool:
    """Whether numbers are not one number."""
    return max(numbers) - min(numbers) > SCALES_APART * max(numbers)


def _list_scales(record: ValueRecord) -> Iterator[tuple[int, _Scale]]:
    """Yield by what each step's gradients were multiplied, where that is one number."""
    for number, step in enumerate(record.steps):
        began = record.steps[number - 1].at if number else -1
        kept = record.find_last(GradientChange, began, step.at)
        count = 2
        if (parts := record.find_last(ShardChange, began, step.at)) is not None:
            factor: float | None = parts.factor
        elif (reduced := record.find_last(ReducedChange, began, step.at)) is not None:
            factor, count = reduced.factor, reduced.count
        elif kept is not None:
            factor = _find_common_factor(step, kept)
        else:
            continue
        if factor is not None:
            left = kept.place if kept is not None else step.place
            yield number, _Scale(factor, left, step.place, step.turn, count)


def _find_common_factor(step: OptimizerStep, change: GradientChange) -> float | None:
    """Return by what all gradients of a step were multiplied, of which there are several."""
    own = {number for number, each in step.gradients.items() if each is not None}
    if not change.left:
        return 1.0
    return change.factor if len(own) > 1 and own <= {number for number, _ in change.left} else None


def _tell_scales(records: Records, scales: Mapping[int, _Scale]) -> ValueFinding:
    rank, first = next(iter(scales.items()))
    shown = ", ".join(f"{each.factor:.4g} on rank {r}" for r, each in [*scales.items()][:4])
    return ValueFinding(
        code="norm_is_local",
        message=f"each rank multiplies its gradients by a number of its own: {shown}, and these "
        "ranks hold parts of one model, which one norm of all of them clips alike",
        ranks=tuple(scales),
        rank=rank,
        place=first.step,
        frames=find_gradient_writes(records[rank], first.left, first.step),
        hint=HINT,
        turn=first.turn,
    )
