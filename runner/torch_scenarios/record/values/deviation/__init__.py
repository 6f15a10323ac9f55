"""Where what several ranks compute leaves what one process computes, and the line to blame for it.

Outputs of modules, gradients as the optimizer gets them, and weights after it, each within a bound
of what rounding does. `value` finds a gradient or a weight that is off, `cause` says what it is in
place of that of one process, and `make_finding` which line is to blame, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.values.arrangement import (
    Arrangement,
    Layout,
    Records,
    Values,
    arrays_by_name,
)
from torch_scenarios.record.values.deviation.cause import (
    Meaning,
    explain,
    is_about_a_multiple,
    leave_out_reduced,
)
from torch_scenarios.record.values.deviation.distance import (
    COARSE_OUTPUT,
    OUTPUTS_APART,
    find_coarsest,
    find_limit,
    find_own_statistics,
    has_near_rows,
    is_near,
    name_arrangement,
)
from torch_scenarios.record.values.deviation.loss import find_loss
from torch_scenarios.record.values.deviation.output import (
    find_first_output,
    list_first_calls,
    output_of,
)
from torch_scenarios.record.values.deviation.value import (
    ABOUT,
    COARSE,
    LATER,
    SENT,
    Deviation,
    bound_of,
    choose_deviation,
    find_deviations,
    is_left_apart,
    measure_noise,
    size_of_gradients,
    tell_size,
)
from torch_scenarios.record.values.format.event import (
    BackwardPass,
    BackwardResult,
    ModuleOutput,
    NormClip,
)
from torch_scenarios.record.values.format.record import (
    CarriedTensor,
    CarryingCall,
    OptimizerStep,
    ValueRecord,
)
from torch_scenarios.record.values.invariants.finding import (
    Cause,
    ValueFinding,
    list_by_rank,
    list_names,
    tell_call,
)
from torch_scenarios.record.values.roles import find_stages
from torch_scenarios.record.values.source import find_gradient_writes, frames_of_loss, is_in_forward
from torch_scenarios.verdict.finding import ranks_text

__all__ = [
    "ABOUT",
    "COARSE",
    "COARSE_OUTPUT",
    "LATER",
    "SENT",
    "Deviation",
    "bound_of",
    "choose_deviation",
    "find_coarsest",
    "find_deviations",
    "find_first_output",
    "find_limit",
    "find_loss",
    "find_own_statistics",
    "has_near_rows",
    "is_about_a_multiple",
    "is_left_apart",
    "is_on_several",
    "leave_out_reduced",
    "leaves_right",
    "make_finding",
    "measure_noise",
    "name_arrangement",
    "output_of",
    "size_of_gradients",
]

#: a value is another one times a number
MULTIPLES = {
    *(Cause.MULTIPLE, Cause.FRACTION, Cause.SCALED, Cause.ABOUT_A_MULTIPLE, Cause.ROOT),
}


class BackwardEdge(Struct, frozen=True, kw_only=True):
    """Where a backward pass becomes wrong: behind the module `call`, whose gradients are right.

    `right` are the parameters of what is called from there on, `split` those of the module itself
    of which each rank has a part.
    """

    call: ModuleOutput
    right: tuple[str, ...]
    split: tuple[str, ...]


def find_backward_edge(
    first: Deviation, sure: Sequence[Deviation], record: ValueRecord, layout: Layout
) -> BackwardEdge | None:
    """Return where the backward pass of a rank becomes wrong, by the order of its modules' calls.

    Each module that is called behind the last one with a wrong gradient has right ones alone; None
    where there is none, or no module has a wrong one.
    """
    off = {e.name for e in sure if (e.step, e.kind, e.rank) == (first.step, "gradient", first.rank)}
    own = layout[first.rank]
    call: ModuleOutput | None = None
    last: list[str] = []
    right: list[str] = []
    for event in reversed([*list_first_calls(record, first.step)]):
        names = [name for name in own if name.rpartition(".")[0] == event.module]
        if not off.isdisjoint(names):
            if call is None:
                return None
            split = [name for name in last if own[name].dimension >= 0 or own[name].block]
            return BackwardEdge(call=call, right=(*right,), split=(*split,))
        if names:
            call, last = event, names
            right += names
    return None


class Blame(Struct, frozen=True):
    """The frames of the line that is to blame, what the value is, in words, and what to do."""

    frames: Frames
    words: str
    hint: str


class _Case(Struct, frozen=True):
    """A deviation of a step, what it is, and the runs that are compared."""

    first: Deviation
    sure: Sequence[Deviation]
    reference: Values
    held: Mapping[int, Values]
    layout: Layout
    records: Records
    step: OptimizerStep
    known: Meaning

    @property
    def record(self) -> ValueRecord:
        """What the rank wrote whose value is off."""
        return self.records[self.first.rank]

    @property
    def is_changed(self) -> bool:
        """Whether what backward leaves is right, and the optimizer gets another value."""
        is_right = leaves_right(self.first, self.reference, self.held, self.layout)
        return is_right and _is_changed(self.first, self.held)


def make_finding(
    first: Deviation,
    sure: Sequence[Deviation],
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
) -> ValueFinding:
    """Return a deviation as a finding: what the value is, and the line that is to blame."""
    steps = records[first.rank].steps
    step = next((each for each in steps if each.turn == first.step), steps[0])
    known = _describe(first, reference, held, layout, records, step)
    case = _Case(first, sure, reference, held, layout, records, step, known)
    blame = next(found for each in _BLAMES if (found := each(case)) is not None)
    what = "the gradient of" if first.kind == "gradient" else "the weight"
    return ValueFinding(
        code="not_equivalent",
        message=f"step {first.step}: {what} `{first.name}` on rank {first.rank} {blame.words}"
        f"{tell_size(first)}",
        ranks=(first.rank,),
        rank=first.rank,
        place=step.place,
        frames=blame.frames,
        hint=blame.hint,
        turn=first.step,
        name=first.name,
        cause=known.cause,
        is_measured=bool(np.isfinite(first.off)),
    )


def _blame_mixed_parts(case: _Case) -> Blame | None:
    mixing = _find_mixing(case.first, case.record, case.step, case.layout)
    if mixing is None:
        return None
    return Blame(
        case.record.places.get(mixing.place, ()),
        f"is not what one process has: {ranks_text(mixing.ranks)} hold other parts of this "
        "parameter, and their gradients are reduced together",
        "reduce over the ranks that hold the same part alone, where there are several",
    )


def _blame_own_scale(case: _Case) -> Blame | None:
    scales = _tell_scales(case.first, case.reference, case.held, case.layout)
    return None if scales is None else Blame(_frames_of_scale(case), *scales)


def _blame_root(case: _Case) -> Blame | None:
    if case.known.cause is not Cause.ROOT:
        return None
    frames = _frames_of_scale(case) or _frames_to_blame(
        case.first, case.record, case.step, Cause.ROOT
    )
    return Blame(frames, case.known.words, case.known.hint)


def _frames_of_scale(case: _Case) -> Frames:
    return _frames_of_clip(case.record, case.step) or _frames_of_writes(case.record, case.step)


def _blame_lone_clip(case: _Case) -> Blame | None:
    clip = _find_lone_clip(case.first, case.records) if case.is_changed else None
    if not clip:
        return None
    shown = list_by_rank({r: f"{e.norm:.4g}" for r, e in clip.items()})
    return Blame(
        case.record.places.get(clip[case.first.rank].place, ()),
        f"{case.known.words}, though what backward leaves is right: each rank clips it by a norm "
        f"of its own ({shown}) before it is reduced",
        "reduce gradients before they are clipped: then each rank has the same norm",
    )


def _blame_change(case: _Case) -> Blame | None:
    cause = case.known.cause
    if cause in {Cause.OWN, Cause.OWN_IN_OPTIMIZER} or not case.is_changed:
        return None
    return Blame(
        _frames_of_change(case.record, case.step, case.first.name, cause),
        f"{case.known.words}, though what backward leaves is right: it is changed before the "
        "optimizer",
        case.known.hint if cause is Cause.SHIFTED else _tell_change(cause),
    )


def _blame_undivided(case: _Case) -> Blame | None:
    """Of a parameter that one rank has alone, and that gets the rows of all ranks."""
    own = case.layout[case.first.rank][case.first.name]
    is_multiple = case.known.cause in {Cause.MULTIPLE, Cause.ABOUT_A_MULTIPLE}
    if not is_multiple or is_on_several(case.first, case.layout) or own.flat is not None:
        return None
    return Blame(
        _frames_of_writes(case.record, case.step),
        case.known.words,
        "divide what one rank alone has of all ranks' rows by the ranks, too: each rank's loss is "
        "the mean of its own rows",
    )


def _blame_reductions(case: _Case) -> Blame | None:
    again = _find_reductions(case.record, case.step, case.first.name)
    if not again:
        return None
    return Blame(
        case.record.places.get(again[-1].place, ()),
        f"{case.known.words}: it is reduced {len(again)} times in a step, each time with what was "
        "before",
        "reduce once, after the last microbatch",
    )


def _blame_backward_edge(case: _Case) -> Blame | None:
    first = case.first
    is_stage = first.rank in find_stages(case.records)
    if case.known.cause is not Cause.UNLIKE or first.kind != "gradient" or is_stage:
        return None
    edge = find_backward_edge(first, case.sure, case.record, case.layout)
    if edge is None:
        return None
    return Blame(
        case.record.places.get(edge.call.place, ()),
        f"{case.known.words}; the loss is right, and so are the gradients of "
        f"{list_names(edge.right)}",
        _advise_on_edge(edge),
    )


def _blame_origin(case: _Case) -> Blame:
    """Of a value of which nothing more is known."""
    frames = _frames_to_blame(case.first, case.record, case.step, case.known.cause)
    return Blame(frames, case.known.words, case.known.hint)


#: what may be to blame: the first that is there, is; the last always is
_BLAMES: tuple[Callable[[_Case], Blame | None], ...] = (
    _blame_mixed_parts,
    _blame_own_scale,
    _blame_root,
    _blame_lone_clip,
    _blame_change,
    _blame_undivided,
    _blame_reductions,
    _blame_backward_edge,
    _blame_origin,
)


def _describe(
    first: Deviation,
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
    step: OptimizerStep,
) -> Meaning:
    """Return what a value is, and what to look at where its values tell nothing."""
    record = records[first.rank]
    own = sorted(layout[first.rank], key=lambda name: record.names.get(name, -1))
    order = [layout[first.rank][name].name for name in own]
    known = explain(first, reference, held, layout, order)
    if first.kind == "after" and (within := _find_calls_in_step(record, step)):
        return Meaning(
            known.cause,
            f"{known.words}, and its gradient is right: the optimizer exchanges values "
            f"({tell_call(within[-1].operation)}) in its step",
            "look at what the step computes of a rank's part alone before it exchanges it: a norm, "
            "a mean, or a product of matrices is of the whole weight",
        )
    if known.cause is Cause.UNLIKE and first.rank in find_stages(records):
        hint = (
            "look at the gradient that each backward pass of this stage gets: that of its own "
            "microbatch, in the order in which they are sent, and each once"
        )
        return Meaning(known.cause, known.words, hint)
    return known


def _advise_on_edge(edge: BackwardEdge) -> str:
    """Return what to look at where a backward pass becomes wrong behind a module."""
    shown = f"`{edge.call.module}`"
    if edge.split:
        return (
            f"each rank has a part of {list_names(edge.split)}: sum the gradient of what comes "
            f"into {shown} over these ranks, by an autograd function that copies forward and is "
            "an all_reduce in backward"
        )
    return (
        f"look at what computes the input of {shown}, and what its backward does: an autograd "
        "function, a hook, a `detach`, a collective that has no backward"
    )


def _find_calls_in_step(record: ValueRecord, step: OptimizerStep) -> list[CarryingCall]:
    """Return the collectives that an optimizer makes in its own step, in order."""
    outer = record.places.get(step.place, ())
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    return [
        call
        for call in record.calls
        if began < call.at < step.at
        and len(frames := record.places.get(call.place, ())) > len(outer) > 0
        and frames[-len(outer) :] == outer
    ]


def _find_lone_clip(first: Deviation, records: Records) -> dict[int, NormClip] | None:
    """Return the clipping of each rank, by its own norm, before a reduction of what it clips.

    Empty where a rank clips by no norm of its own, or does after all of its reductions.
    """
    found = {}
    for rank, record in records.items():
        step = next((each for each in record.steps if each.turn == first.step), None)
        if step is None:
            return None
        began = max((each.at for each in record.steps if each.at < step.at), default=-1)
        clips = [e for e in record.of(NormClip) if began < e.at < step.at]
        number = record.names.get(first.name, -1)
        later = [
            call
            for call in record.calls
            if clips and clips[-1].at < call.at < step.at
            if any(t.carries == "gradient" and number in t.parameters for t in call.tensors)
        ]
        if not later:
            return None
        found[rank] = clips[-1]
    norms = [each.norm for each in found.values()]
    is_apart = max(norms, default=0.0) - min(norms, default=0.0) > OUTPUTS_APART * max(norms)
    return found if is_apart else None


def _find_mixing(
    first: Deviation, record: ValueRecord, step: OptimizerStep, layout: Layout
) -> CarryingCall | None:
    """Return the call that reduces a gradient over ranks that hold other parts of a parameter."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    number = record.names.get(first.name, -1)
    own = layout[first.rank][first.name]
    for call in record.calls:
        is_own = any(
            t.exact and t.carries == "gradient" and number in t.parameters for t in call.tensors
        )
        if not began < call.at < step.at or call.op not in {"sum", "avg"} or not is_own:
            continue
        others = [layout[rank].get(first.name) for rank in call.ranks if rank in layout]
        if any(each is not None and each.name == own.name and each != own for each in others):
            return call
    return None


def _find_reductions(record: ValueRecord, step: OptimizerStep, name: str) -> list[CarryingCall]:
    """Return the sums of one gradient before a step, where backward passes are between them."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    number = record.names.get(name, -1)

    def is_own(tensor: CarriedTensor) -> bool:
        return tensor.exact and tensor.carries == "gradient" and number in tensor.parameters

    calls = [call for call in record.calls if began < call.at < step.at and call.op == "sum"]
    own = [call for call in calls if any(map(is_own, call.tensors))]
    passes = [e.at for e in record.of(BackwardPass) if began < e.at < step.at]
    is_again = all(any(a.at < at < b.at for at in passes) for a, b in pairwise(own))
    return own if len(own) > 1 and is_again else []


def leaves_right(
    first: Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> bool:
    """Whether what backward leaves, on the ranks that hold one part, is what one process has.

    Each rank's loss is the mean of its own rows, or their part of the mean of all: the mean over
    ranks is the reference's, or as many times smaller; an expert's rows are those of all ranks.
    """
    if first.kind != "gradient":
        return False
    at = layout[first.rank][first.name]
    whole = arrays_by_name(reference, first.step, "left").get(at.name)
    parts = [
        arrays_by_name(held[rank], first.step, "left").get(name)
        for rank, own in layout.items()
        for name, each in own.items()
        if each == at
    ]
    left = [each.astype(float) for each in parts if each is not None]
    if whole is None or len(left) < len(parts) or not left:
        return False
    wanted = at.part_of(whole).astype(float)
    if any(each.shape != wanted.shape for each in left) or not wanted.any():
        return False
    mean = np.mean(left, axis=0)
    apart = find_limit([reference, *held.values()], first.step)
    factors = (1.0, 1 / len(held)) if len(left) > 1 else (1.0, 1 / len(held), float(len(held)))
    return any(is_near(mean, factor * wanted, apart) for factor in factors)


def _is_changed(first: Deviation, held: Mapping[int, Values]) -> bool:
    """Whether a gradient at the optimizer is another one than its backward pass has left."""
    left, got = (
        arrays_by_name(held[first.rank], first.step, kind).get(first.name)
        for kind in ("left", "gradient")
    )
    return left is None or got is None or not np.array_equal(left, got)


def is_on_several(first: Deviation, layout: Layout) -> bool:
    """Whether several ranks hold the same part of the parameter that a value belongs to."""
    at = layout[first.rank][first.name]
    return sum(at in own.values() for own in layout.values()) > 1


def _frames_of_change(record: ValueRecord, step: OptimizerStep, name: str, cause: Cause) -> Frames:
    """Return where a gradient is changed after backward.

    At its last collective, else at any, else where it is clipped. What is times another number is
    so by a norm, or a count, that ranks have summed.
    """
    passes = [e.at for e in record.of(BackwardPass) if e.at < step.at]
    began = passes[-1] if passes else 0
    number = record.names.get(name, -1)
    calls = [
        each
        for each in record.calls
        if began < each.at < step.at and {t.carries for t in each.tensors} != {"activation"}
    ]
    own = [c for c in calls if any(t.exact and number in t.parameters for t in c.tensors)]
    if cause is Cause.SCALED:
        since = max((each.at for each in own), default=-1)
        own = [c for c in calls if c.at > since and c.tensors[0].size == 1] or own
    places = [each.place for each in own or calls]
    return record.places.get(places[-1], ()) if places else _frames_of_clip(record, step)


def _frames_of_clip(record: ValueRecord, step: OptimizerStep) -> Frames:
    """Return where gradients are clipped last before a step, or nothing."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    places = [e.place for e in record.of(NormClip) if began < e.at < step.at]
    return record.places.get(places[-1], ()) if places else ()


def _frames_of_writes(record: ValueRecord, step: OptimizerStep) -> Frames:
    """Return the line that writes gradients between a backward pass and a step, or nothing."""
    places = [e.place for e in record.of(BackwardResult) if e.at < step.at]
    return find_gradient_writes(record, places[-1], step.place) if places else ()


def _tell_scales(
    first: Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> tuple[str, str] | None:
    """Return that each rank has multiplied all its gradients by another number, and where."""
    if first.kind != "gradient":
        return None
    scales = {
        rank: _scale_of(first.step, reference, values, layout[rank])
        for rank, values in held.items()
    }
    known = {rank: scale for rank, scale in scales.items() if scale is not None}
    apart = max(known.values(), default=1.0) - min(known.values(), default=1.0)
    if len(known) < len(held) or apart <= OUTPUTS_APART:
        return None
    shown = ", ".join(f"{scale:.4g} on rank {r}" for r, scale in [*known.items()][:4])
    return (
        (
            f"is {known[first.rank]:.4g} times what one process has, as all gradients of this rank "
            f"are: each rank multiplies them by a number of its own ({shown})"
        ),
        (
            "clip by the norm of the whole model: sum the squares of all parts of it over the "
            "ranks (all_reduce) before the root; a loss scale is one number on all ranks, too"
        ),
    )


def _scale_of(
    step: int, reference: Values, values: Values, own: Mapping[str, Arrangement]
) -> float | None:
    """Return by what one number all gradients of a rank are the reference's; None where none is."""
    wholes = arrays_by_name(reference, step, "gradient")
    ratios = []
    for name, got in arrays_by_name(values, step, "gradient").items():
        at = own.get(name)
        whole = wholes.get(at.name) if at is not None else None
        if at is None or whole is None:
            return None
        wanted = at.part_of(whole).astype(float)
        power = float((wanted * wanted).sum())
        if got.shape != wanted.shape or not power:
            return None
        ratio = float((got * wanted).sum()) / power
        if not is_near(got.astype(float), ratio * wanted):
            return None
        ratios.append(ratio)
    alike = len(ratios) > 1 and max(ratios) - min(ratios) <= OUTPUTS_APART * max(map(abs, ratios))
    return ratios[0] if alike else None


def _frames_to_blame(
    first: Deviation, record: ValueRecord, step: OptimizerStep, cause: Cause
) -> Frames:
    """Return where a wrong value comes from, or nowhere.

    A gradient from its reduction, or the loss; a weight from the last call of the optimizer's step.
    """
    if first.kind == "after" and (within := _find_calls_in_step(record, step)):
        return record.places.get(within[-1].place, ())
    if first.kind != "gradient" or cause is Cause.OWN_IN_OPTIMIZER:
        return ()
    if cause is Cause.OWN:
        module = first.name.rpartition(".")[0]
        for event in record.of(ModuleOutput):
            frames = record.places.get(event.place, ())
            if event.module == module and is_in_forward(frames):
                return frames
        return ()
    number = record.names.get(first.name, -1)
    for call in record.calls:
        # a bucket that a hook of DDP reduces may hold any gradient
        is_own = any(
            e.carries == "gradient" and (number in e.parameters or not e.parameters)
            for e in call.tensors
        )
        is_other = cause in MULTIPLES or call.op not in {"", "sum", "avg"}
        if call.turn == first.step and is_own and is_other:
            return record.places.get(call.place, ())
    passes = [e.place for e in record.of(BackwardPass) if e.turn == first.step]
    return frames_of_loss(record, passes[0]) if passes else ()


def _tell_change(cause: Cause) -> str:
    """Return what to look at where a gradient is changed between backward and the optimizer."""
    hint = "look at what reduces, scales or copies gradients between backward and the step"
    if cause in MULTIPLES:
        hint += (
            ". Where gradients are clipped by a norm of all of them, sum the squares of each part "
            "over the ranks that hold parts, and count once what all ranks hold"
        )
    return hint
