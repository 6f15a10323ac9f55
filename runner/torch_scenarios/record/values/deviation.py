"""Where what several ranks compute leaves what one process computes, and what it is there.

Outputs of modules, gradients as the optimizer gets them, and weights after it, each within a bound
of what rounding does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.record.values.arrangement import (
    Arrangement,
    Array,
    Layout,
    Records,
    Values,
    arrays_by_name,
    find_first_weights,
)
from torch_scenarios.record.values.format.event import (
    BackwardPass,
    BackwardResult,
    LossValues,
    ModelInput,
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
    tell_line,
)
from torch_scenarios.record.values.roles import find_stages
from torch_scenarios.record.values.source import (
    cuts_in_class,
    find_gradient_writes,
    frames_of_loss,
    frames_of_return,
    is_in_forward,
)
from torch_scenarios.verdict.finding import ranks_text

#: times the unit roundoff and the root of the fan-in that a value may be off; times that, from
#: which it is wrong for sure
SLACK, SURE = 16.0, 100.0


#: part of the largest gradient of a step below which one is compared with that part: a bias before
#: a norm, whose gradient is zero but for rounding
CANCELLED = 1e-2


#: times of what disturbed runs of the reference change that a value may be off
MEASURED = 8.0


#: times the unit roundoff of the precision in which gradients are sent that a value may be off;
#: wrong for sure is what is off by COARSE_SURE times that
SENT = 4.0


#: times the unit roundoff of a lower precision in which modules compute that a value, an output and
#: a loss may be off; times the first, from which a value is wrong, and times what was measured
COARSE, COARSE_OUTPUT, COARSE_LOSS = 2.0, 8.0, 1.0
COARSE_SURE, MEASURED_SURE = 10.0, 2.0


#: relative distance from which an output is not that of one process
OUTPUTS_APART = 1e-3


#: relative distance from which a loss is not that of one process
LOSSES_APART = 1e-4


#: how much more may be off a step later
LATER = 4.0


#: part of a gradient by which another may differ, and be about the same
ABOUT = 0.25


#: part of a gradient by which a multiple of it may differ, where it is sent as whole numbers
ROUGHLY = 0.1


#: elements of a tensor that say too little by chance
FEW = 16
#: numbers beyond two for each column that a rescaling of rows has to explain
FEW_FREE = 8
#: what to do about a gradient that is several times the right one
DIVIDE_BY_ALL = (
    "divide by what was really summed: the ranks that hold other rows, the microbatches, the "
    "tokens of all of them"
)
#: what to do about a gradient that is a fraction of the right one
DIVIDED_TWICE = (
    "divide once: DistributedDataParallel and FSDP divide gradients by the number of ranks. If the "
    "loss is divided by the rows or tokens of all ranks, multiply it by the number of ranks. If it "
    "uses tensors of other ranks (`all_gather`), use a call that sends gradients back to them"
)
#: calls that give a rank what others have
GATHERING = {"allgather_", "_allgather_base_"}
#: what to look at where a loss is computed with gathered rows
OF_GATHERED = (
    "look at what is gathered: where a rank pads its part to the length of the others, drop the "
    "padding after the call, and take each row from its own place"
)
#: what to look at where a loss is computed with collectives
OF_ALL_CLASSES = (
    "look at what each of these calls reduces, and at what none reduces: where classes are split "
    "over ranks, reduce the maximum (`ReduceOp.MAX`), the sum of exponentials and the logit of the "
    "target over all of them, and count each row and token once"
)
#: what to do about rows that several ranks have, and others that none has
TAKE_OWN_PART = (
    "call this module with each rank's own part: where a sequence is split, a position is "
    "counted from the start of the whole sequence (`rank * length + arange(length)`)"
)
#: what to do about rows that one rank has in several calls
KEEP_EACH_CALL = (
    "give each call its own value: a buffer into which the next microbatch is received holds "
    "that one in all calls that follow, and in their backward passes"
)
#: rows of an output in which those that no rank has are looked for
MOST_COVERED = 4096
#: of a value that has no number at some elements
INFINITE = "is not a number, or infinite, where one process has numbers"
#: of a value of which nothing more is known
UNLIKE = "is not what one process has"
#: a value is another one times a number
MULTIPLES = {
    *(Cause.MULTIPLE, Cause.FRACTION, Cause.SCALED, Cause.ABOUT_A_MULTIPLE, Cause.ROOT),
}
#: torch's modules whose output depends on their weights and input alone, row by row
PLAIN = {
    *("Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "Identity", "Flatten"),
    *("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU", "Softplus"),
}
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def find_first_output(
    first: ValueRecord,
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
    step: int,
) -> ValueFinding | None:
    """Return the first module, in the order of computing, whose output no arrangement explains.

    The stage of a pipeline may name a module otherwise, as its parameters show.
    """
    before = ""
    apart = find_limit([reference, *held.values()], step)
    names = {rank: _names_of_modules(own) for rank, own in layout.items()}
    is_piped = any(each != {"": ""} for each in names.values())
    stages = {*find_stages(records)}
    for event in _list_first_calls(first, step):
        name, kind = event.module, event.module_type
        whole = output_of(reference, step, name)
        own_names = {
            rank: _rename(name, names[rank])
            if rank not in stages or _has_whole(name, reference, layout[rank])
            else None
            for rank in held
        }
        present = _outputs_of_ranks(held, own_names, step)
        if whole is None or not present or (len(present) < len(held) and not is_piped):
            continue
        if name_arrangement(whole, [*present.values()], apart) or _is_mean_of_parts(
            [_numbers_of(reference, step, name)]
            + [_numbers_of(held[r], step, own_names[r] or name) for r in present],
            apart,
        ):
            before = name
            if lacking := _find_lacking_rows(event, whole, present, records, own_names, apart):
                return lacking
            continue
        rank = next(
            (r for r, part in present.items() if not name_arrangement(whole, [part], apart)),
            min(present),
        )
        record = records[rank]
        own = next(
            e for e in record.of(ModuleOutput) if e.turn == step and e.module == own_names[rank]
        )
        frames = frames_of_return(record.places.get(own.place, ()), kind)
        shown = f"`{name}` ({kind})" if name else f"the model ({kind})"
        words = "the modules before it are right"
        hint = (
            "look at what this module sums, splits, puts in order or normalises over: the same "
            "over all ranks as in one process, and once"
        )
        stale = _find_stale(layout[rank], name, (reference, held[rank]), step, apart)
        if stale:
            words += f", and {list_names(stale)} is not what one process has at this step"
            hint = (
                "look at what has written this weight since the step before: whose optimizer "
                "steps it, and what sends it to the other ranks"
            )
        elif kind in PLAIN and before and _is_whole_on(layout[rank], name):
            words += ", and so are its weights: what comes into it is not what one process has"
            hint = (
                f"look at what is done to values between `{before}` and this module: what is "
                "exchanged, split, joined or summed there, and in which order"
            )
        elif fused := _find_fused(record, own.place, kind, layout[rank], reference, name):
            hint = (
                f"`{fused}` is split into one block of rows a rank, and its product is cut again "
                "here: split each of the weights that are fused in it (queries, keys and values; "
                "gate and up), and join a rank's parts"
            )
        words, hint = _add_rows_again(whole, present[rank], apart, (words, hint))
        if left := _find_unstepped(first, records, layout, name):
            words += f", and no rank's optimizer steps {list_names(left)}"
            hint = "give each parameter to the optimizer of a rank"
        elif (sent := _find_sent_weight(record, own.at, name)) is not None:
            frames = record.places.get(sent.place, ())
            words += f", and its weights are what this {tell_call(sent.operation)} left"
            hint = "let the rank that has stepped a weight send it: the owner, by the same rule"
        return ValueFinding(
            code="not_equivalent",
            message=f"step {step}, forward: the output of {shown} on {ranks_text((rank,))} "
            f"{_word_output(whole, present[rank], apart)}; {words}",
            ranks=(rank,),
            rank=rank,
            place=own.place,
            frames=frames,
            hint=hint,
            turn=step,
            name=name,
        )
    return None


def _list_first_calls(first: ValueRecord, step: int) -> Iterator[ModuleOutput]:
    """Yield the first call of each module in a step, in the order of computing."""
    seen = set()
    for event in first.of(ModuleOutput):
        if event.turn == step and event.module not in seen:
            seen.add(event.module)
            yield event


def _outputs_of_ranks(
    held: Mapping[int, Values], names: Mapping[int, str | None], step: int
) -> dict[int, Array]:
    """Return what a module gave back in a step on each rank that has it, by its name there."""
    parts = {
        rank: output_of(values, step, name)
        for rank, values in held.items()
        if (name := names[rank]) is not None
    }
    return {rank: part for rank, part in parts.items() if part is not None}


def _find_lacking_rows(
    event: ModuleOutput,
    whole: Array,
    parts: Mapping[int, Array],
    records: Records,
    names: Mapping[int, str | None],
    apart: float,
) -> ValueFinding | None:
    """Return a finding where ranks have slices of an output, and some of its rows are on no rank.

    For example, each rank of a split sequence counts its positions from zero. `names` has what each
    rank calls the module.
    """
    cut = _cut_dimension(whole, [*parts.values()])
    if cut is None or not all(_has_rows(each, whole, cut, apart) for each in parts.values()):
        return None
    rows = np.moveaxis(whole, cut, 0).reshape(whole.shape[cut], -1)
    size = (float(np.abs(whole).max(initial=0.0)) or 1.0) * apart
    own = np.concatenate(
        [np.moveaxis(each, cut, 0).reshape(each.shape[cut], -1) for each in parts.values()]
    )
    if len(own) < len(rows) or len(rows) > MOST_COVERED:
        return None
    left = [at for at, row in enumerate(rows) if (np.abs(own - row).max(axis=1) > size).all()]
    if not left:
        return None
    name, kind = event.module, event.module_type
    again = [rank for rank, each in parts.items() if _repeats_rows(each, cut)]
    again = [] if _repeats_rows(whole, cut) else again
    rank = [*(again or parts)][-1]
    record = records[rank]
    called = next(
        e for e in record.of(ModuleOutput) if e.turn == event.turn and e.module == names[rank]
    )
    shown = f"`{name}` ({kind})" if name else f"the model ({kind})"
    which = f"row {left[0]}"
    if len(left) > 1:
        is_run = left[-1] - left[0] == len(left) - 1
        which = f"rows {left[0]} to {left[-1]}" if is_run else f"{len(left)} of them"
    who, hint = "several ranks have the same rows", TAKE_OWN_PART
    if again:
        who, hint = f"{ranks_text((rank,))} has the same rows in several calls", KEEP_EACH_CALL
    return ValueFinding(
        code="not_equivalent",
        message=f"step {event.turn}, forward: each rank has a part of the {len(rows)} rows "
        f"(dimension {cut}) of the output of {shown}, and no rank has {which}: {who}; the modules "
        "before it are right",
        ranks=(*parts,),
        rank=rank,
        place=called.place,
        frames=frames_of_return(record.places.get(called.place, ()), kind),
        hint=hint,
        turn=event.turn,
        name=name,
    )


def _add_rows_again(
    whole: Array, part: Array, apart: float, known: tuple[str, str]
) -> tuple[str, str]:
    """Return what is known of an output, and that it has some rows again in place of others."""
    if part.shape != whole.shape or part.ndim < 2 or _repeats_rows(whole, 0):
        return known
    if not _repeats_rows(part, 0) or not _has_rows(part, whole, 0, apart):
        return known
    words = f"{known[0]}, and some of its rows are there in several calls, and others in none"
    return words, KEEP_EACH_CALL


def _repeats_rows(value: Array, dimension: int) -> bool:
    """Whether a value has some slices along a dimension more than once."""
    rows = np.moveaxis(value, dimension, 0).reshape(value.shape[dimension], -1)
    return len({row.tobytes() for row in rows}) < len(rows)


def _cut_dimension(whole: Array, parts: Sequence[Array]) -> int | None:
    """Return the one dimension in which all parts have fewer rows than a whole; None otherwise."""
    found = [d for d in range(whole.ndim) if all(_suits(each, whole, d) for each in parts)]
    return found[0] if len(found) == 1 else None


def _numbers_of(values: Values, step: int, name: str) -> list[float]:
    """Return what a module gave back in each call of a step where these are single numbers."""
    own = arrays_by_name(values, step, "out")
    calls: list[Array] = []
    while f"{name}#{len(calls)}" in own:
        calls.append(own[f"{name}#{len(calls)}"])
    return [float(each) for each in calls] if all(each.ndim == 0 for each in calls) else []


def _is_mean_of_parts(numbers: Sequence[list[float]], apart: float) -> bool:
    """Whether the numbers of ranks are means of their own rows, or parts of a mean of all.

    The first are those of one process. The sum of the others is these times one to as many as there
    are ranks, as ranks of one model have a loss several times.
    """
    whole, *parts = [sum(each) for each in numbers]
    if not whole or not all(numbers) or not np.isfinite([whole, *parts]).all():
        return False
    ratio = sum(parts) / whole
    return 1 <= round(ratio) <= len(parts) and abs(ratio - round(ratio)) <= apart * ratio


def _has_whole(module: str, reference: Values, own: Mapping[str, Arrangement]) -> bool:
    """Whether a stage has all parameters of a module of the reference: not those of its own."""
    inside = f"{module}." if module else ""
    wanted = {name for name in find_first_weights(reference) if name.startswith(inside)}
    return wanted <= {each.name for each in own.values()}


def _is_whole_on(own: Mapping[str, Arrangement], module: str) -> bool:
    """Whether a rank has the whole of each parameter of a module."""
    parts = [each for each in own.values() if each.name.rpartition(".")[0] == module]
    return all(each == Arrangement(name=each.name) for each in parts)


def _find_fused(
    record: ValueRecord,
    place: int,
    kind: str,
    own: Mapping[str, Arrangement],
    reference: Values,
    module: str,
) -> str:
    """Return a weight of a module that is split by rows, and whose product the module cuts.

    A rank has one block of its rows, which need not have a part of each weight that is fused in it.
    """
    if not cuts_in_class(record.places.get(place, ()), kind):
        return ""
    wholes = find_first_weights(reference)
    for name, at in own.items():
        whole, rows = wholes.get(at.name), at.rows
        if at.name.rpartition(".")[0] != module or whole is None or at.dimension != 0:
            continue
        is_block = whole.ndim == 2 and rows == tuple(range(rows[0], rows[0] + len(rows)))
        if is_block and len(rows) < whole.shape[0]:
            return name
    return ""


def _find_stale(
    own: Mapping[str, Arrangement],
    module: str,
    sides: tuple[Values, Values],
    step: int,
    apart: float,
) -> list[str]:
    """Return the weights of a module that a rank has whole, and otherwise than one process has."""
    found = []
    for name, at in own.items():
        if at != Arrangement(name=at.name) or at.name.rpartition(".")[0] != module:
            continue
        wanted = _weights_before(sides[0], step, at.name)
        mine = _weights_before(sides[1], step, name)
        if wanted is None or mine is None or wanted.shape != mine.shape:
            continue
        if not _is_near(mine.astype(float), wanted.astype(float), apart):
            found.append(name)
    return found


def _find_unstepped(first: ValueRecord, records: Records, layout: Layout, module: str) -> list[str]:
    """Return the parameters of a module that an optimizer steps in one process, and in no rank."""
    theirs = {first.parameters[n].name for step in first.steps for n in step.gradients}
    mine = {
        at.name
        for rank, record in records.items()
        for step in record.steps
        for number in step.gradients
        if (at := layout[rank].get(record.parameters[number].name)) is not None
    }
    return [name for name in sorted(theirs - mine) if name.rpartition(".")[0] == module]


def _names_of_modules(own: Mapping[str, Arrangement]) -> dict[str, str]:
    """Return a reference's modules, by name, with the name that a rank has for them.

    They are what is left of the names of a parameter without what these have in common.
    """
    found = {}
    for name, at in own.items():
        mine, theirs = name.split("."), at.name.split(".")
        while mine and theirs and mine[-1] == theirs[-1]:
            del mine[-1], theirs[-1]
        found[".".join(theirs)] = ".".join(mine)
    return found or {"": ""}


def _rename(name: str, names: Mapping[str, str]) -> str | None:
    """Return a rank's name of a reference's module; None where it has none."""
    for theirs in sorted(names, key=len, reverse=True):
        if not theirs or name == theirs or name.startswith(f"{theirs}."):
            rest = name.removeprefix(theirs).removeprefix(".") if theirs else name
            found = ".".join(filter(None, (names[theirs], rest)))
            # an expert's name, or a stage's, may be that of another one here
            others = [] if theirs else [each for whole, each in names.items() if whole and each]
            is_other = any(found == each or found.startswith(f"{each}.") for each in others)
            return None if is_other else found
    return None


def _find_sent_weight(record: ValueRecord, at: int, module: str) -> CarryingCall | None:
    """Return the last collective that wrote a weight of a module between a step and a use of it."""
    began = max((each.at for each in record.steps if each.at < at), default=at)
    own = {n for n, p in record.parameters.items() if p.name.rpartition(".")[0] == module}
    sent = [
        call
        for call in record.calls
        if began < call.at < at
        and any(t.exact and t.carries == "weight" and own & {*t.parameters} for t in call.tensors)
    ]
    return sent[-1] if sent else None


def find_loss(
    first: ValueRecord, records: Records, off: Deviation, coarse: float = 0.0
) -> ValueFinding | None:
    """Return that the loss of a step, in which a value is off, is not that of one process.

    `coarse` is the unit roundoff of a lower precision in which modules compute.

    Each rank's may be the mean of its own rows, or their part of the mean of all, and ranks of one
    model have it several times: all of them are the reference's times one to as many as there are.
    """
    step, wanted = off.step, _loss_of(first, off.step)
    losses = {r: loss for r, each in records.items() if (loss := _loss_of(each, step)) is not None}
    if not wanted or not losses:
        return None
    apart = max(LOSSES_APART, COARSE_LOSS * coarse)
    ratio = sum(losses.values()) / wanted
    if 1 <= round(ratio) <= len(losses) and abs(ratio - round(ratio)) <= apart * ratio:
        return None
    mean = ratio / len(losses)
    rank = max(losses, key=lambda r: abs(losses[r] - wanted))
    record = records[rank]
    shown = ", ".join(f"{loss:.5g} on rank {r}" for r, loss in [*losses.items()][:4])
    is_whole = round(mean) > 1 and abs(mean - round(mean)) < apart * mean
    times = f" ({round(mean)} times as large)" if is_whole else ""
    passes = [e.place for e in record.of(BackwardPass) if e.turn == step]
    words, hint = _tell_loss(first, record, step, round(mean) if is_whole else 0)
    return ValueFinding(
        code="not_equivalent",
        message=f"step {step}, forward: the loss is {shown}{times}, and "
        f"{wanted:.5g} in one process; no module before it is off{words}"
        f"{_tell_size(off).replace('(', '(its gradients ')}",
        ranks=tuple(losses),
        rank=rank,
        place=passes[0] if passes else -1,
        frames=frames_of_loss(record, passes[0]) if passes else (),
        hint=hint,
        turn=step,
        is_measured=bool(np.isfinite(off.off)),
    )


def _tell_loss(first: ValueRecord, record: ValueRecord, step: int, times: int) -> tuple[str, str]:
    """Return what is known of how a rank computes its loss, in words, and what to look at.

    The loss is `times` as large as in one process; 0 where that is not a whole number.
    """
    passes = [each.at for each in record.of(BackwardPass) if each.turn == step]
    alone = sum(each.turn == step for each in first.of(BackwardPass))
    if times > 1 and len(passes) == times * alone:
        return (
            f"; it is the sum of {len(passes)} microbatches, each of which has its own mean",
            f"divide the loss of each microbatch by their number ({times}) before its backward",
        )
    ended = passes[0] if passes else 0
    left = max((e.at for e in record.of(ModuleOutput) if e.at < ended), default=ended)
    calls = [
        call
        for call in record.calls
        if left < call.at < ended and call.tensors[0].carries != "gradient"
    ]
    shown = [f"{tell_call(each.operation)}{tell_line(record, each.place)}" for each in calls]
    words = f"; the loss is computed with {', '.join(dict.fromkeys(shown))}" if shown else ""
    kinds = {each.operation for each in calls if each.tensors[0].size > 1}
    if kinds:
        return words, OF_GATHERED if kinds <= GATHERING else OF_ALL_CLASSES
    hint = (
        "look at what the loss sums and divides by: rows, tokens, classes and microbatches of "
        "all ranks, each once. A term that is not a mean of rows (a product of means, a norm, a "
        "variance) needs the sums of all ranks before"
    )
    if _has_parts_of_sequences(first, record, step):
        hint += (
            ". Each rank has a part of each sequence: shift the labels before they are split, so "
            "that the label of a part's last position is the first token of the next part"
        )
    return words, hint


def _has_parts_of_sequences(first: ValueRecord, record: ValueRecord, step: int) -> bool:
    """Whether the rows that a rank's model is called with are shorter than in one process."""
    own = [
        {e.shapes[0] for e in each.of(ModelInput) if e.turn == step and e.shapes}
        for each in (first, record)
    ]
    if not all(len(each) == 1 for each in own):
        return False
    whole, part = (next(iter(each)) for each in own)
    return len(whole) == len(part) and whole != part and all(map(int.__le__, part, whole))


def _loss_of(record: ValueRecord, step: int) -> float | None:
    """Return the sum of the losses of a step; None where it has none, or one is not a number."""
    own = [sum(each.values) for each in record.of(LossValues) if each.turn == step]
    return sum(own) if own and np.isfinite(own).all() else None


def find_coarsest(sides: Iterable[Values], step: int) -> float:
    """Return the unit roundoff in which modules compute where that is less than a gradient's.

    Under autocast a gradient of single precision is a sum in a lower one: rows that are summed on
    another rank are rounded anew, and a product of fewer rows may take another kernel.
    """
    own = {
        str(each.dtype) for values in sides for each in arrays_by_name(values, step, "out").values()
    }
    return max((EPS[each] for each in own & {"float16", "bfloat16"}), default=0.0)


def find_limit(sides: Iterable[Values], step: int) -> float:
    """Return the relative distance from which an output is not that of one process."""
    return max(OUTPUTS_APART, COARSE_OUTPUT * find_coarsest(sides, step))


def output_of(values: Values, step: int, name: str) -> Array | None:
    """Return what a module gave back in a step, the rows of all its calls in order."""
    own = arrays_by_name(values, step, "out")
    calls: list[Array] = []
    while f"{name}#{len(calls)}" in own:
        calls.append(np.atleast_1d(own[f"{name}#{len(calls)}"]))
    if not calls or len({each.shape[1:] for each in calls}) > 1:
        return None
    return np.concatenate(calls).astype(float)


def name_arrangement(whole: Array, parts: Sequence[Array], apart: float = OUTPUTS_APART) -> str:
    """Return how parts make up a whole, in words; nothing where they do not.

    They are the whole, its slices along a dimension, or sums of these to come, up to a distance
    relative to the largest element. What no arrangement of these kinds can be is not known, and
    counts as arranged.
    """
    whole, *parts = _mark_infinite([whole, *parts])
    suits = False
    for some in _sums(parts):
        more = "" if len(some) == len(parts) else f"; summed over {len(parts) // len(some)} ranks"
        if all(each.shape == whole.shape for each in some):
            suits = True
            if all(_is_near(each, whole, apart) for each in some):
                return f"the whole{more}"
        for dimension in range(whole.ndim):
            if all(_suits(each, whole, dimension) for each in some):
                suits = True
                if all(_has_rows(each, whole, dimension, apart) for each in some):
                    return f"split along dimension {dimension}{more}"
    return "" if suits else "an arrangement that is not known"


def _sums(parts: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield the parts, and their sums over sets of ranks of one size, in blocks and in strides."""
    yield [*parts]
    count = len(parts)
    if len({each.shape for each in parts}) > 1:
        return
    for size in (size for size in range(2, count + 1) if count % size == 0):
        yield [np.sum(parts[at : at + size], axis=0) for at in range(0, count, size)]
        if size < count:
            yield [np.sum(parts[at :: count // size], axis=0) for at in range(count // size)]


def _are_finite_alike(one: Array, other: Array) -> bool:
    """Whether two values have infinities, and what is not a number, at the same elements."""
    own, others = (each[~np.isfinite(each)] for each in (one, other))
    alike = np.array_equal(np.isfinite(one), np.isfinite(other))
    return alike and np.array_equal(own.astype(float), others.astype(float), equal_nan=True)


def _set_finite(value: Array) -> Array:
    """Return a value with zero where it has no finite number."""
    finite = np.isfinite(value)
    return value if finite.all() else np.where(finite, value, np.zeros_like(value))


def _mark_infinite(values: Sequence[Array]) -> list[Array]:
    """Return values with numbers beyond their own in place of infinities and of no numbers.

    A mask of scores is minus infinity: its difference from itself would be no number.
    """
    if all(np.isfinite(each).all() for each in values):
        return [*values]
    finite = [each[np.isfinite(each)] for each in values]
    most = max(float(np.abs(each).max(initial=0.0)) for each in finite) or 1.0
    return [np.nan_to_num(each, nan=3 * most, posinf=2 * most, neginf=-2 * most) for each in values]


def _is_near(one: Array, other: Array, apart: float = OUTPUTS_APART) -> bool:
    one, other = _mark_infinite([one, other])
    size = float(np.abs(other).max(initial=0.0)) or 1.0
    return float(np.abs(one - other).max(initial=0.0)) <= apart * size


def _suits(part: Array, whole: Array, dimension: int) -> bool:
    """Whether a part differs from a whole in the size of one dimension alone."""
    if part.ndim != whole.ndim or part.shape[dimension] >= whole.shape[dimension]:
        return False
    return all(
        a == b
        for at, (a, b) in enumerate(zip(part.shape, whole.shape, strict=True))
        if at != dimension
    )


def _has_rows(part: Array, whole: Array, dimension: int, apart: float) -> bool:
    """Whether each slice of a part is a slice of the whole, in any order."""
    rows = np.moveaxis(whole, dimension, 0).reshape(whole.shape[dimension], -1)
    own = np.moveaxis(part, dimension, 0).reshape(part.shape[dimension], -1)
    draw = np.random.default_rng(rows.shape[1]).normal(size=rows.shape[1])
    sketches = rows @ draw
    order = np.argsort(sketches)
    sketches = sketches[order]
    size = (float(np.abs(whole).max(initial=0.0)) or 1.0) * apart
    reach = size * float(np.linalg.norm(draw))
    for each in own:
        sketch = float(each @ draw)
        begin, end = np.searchsorted(sketches, (sketch - reach, sketch + reach))
        near = rows[order[max(begin - 2, 0) : end + 2]]
        if not (np.abs(near - each).max(axis=1, initial=0.0) <= size).any():
            return False
    return True


def _word_output(whole: Array, part: Array, apart: float) -> str:
    """Say what an output is in place of that of one process."""
    if np.isfinite(whole).all() and not np.isfinite(part).all():
        return "is not a number, or infinite, where one process has numbers"
    whole, part = _mark_infinite([whole, part])
    power = float((whole * whole).sum())
    if part.shape == whole.shape and power:
        ratio = float((part * whole).sum()) / power
        if abs(ratio) > apart and _is_near(part / ratio, whole, apart):
            known = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
            return f"is {known} times what one process has"
    return "is not what one process has, nor a part of it, and no sum over ranks is"


def _number_in(numbers: Mapping[str, int]) -> Callable[[tuple[str, Array]], int]:
    return lambda each: numbers.get(each[0], 0)


def find_own_statistics(reference: Values, held: Mapping[int, Values]) -> int | None:
    """Return a rank whose rows are one process's, each column times a number and plus another one.

    They are normalised by the statistics of its own rows. Where those numbers are the same on all
    ranks, the statistics are: they are rounded otherwise than in one process.
    """
    for own, parts in _deal_rows(reference, held):
        wholes = [np.concatenate([*each.values()]) for each in (own, parts)]
        if not _is_rescaled(*wholes) and all(
            _is_rescaled(own[rank], each) for rank, each in parts.items()
        ):
            return next((r for r, each in parts.items() if not _is_near(each, own[r])), None)
    return None


def has_near_rows(reference: Values, held: Mapping[int, Values]) -> bool:
    """Whether the rows of all ranks are those of one process, but for rounding."""
    return any(
        all(_is_near(each, own[rank], LOSSES_APART) for rank, each in parts.items())
        for own, parts in _deal_rows(reference, held)
    )


def _deal_rows(
    reference: Values, held: Mapping[int, Values]
) -> Iterator[tuple[dict[int, Array], dict[int, Array]]]:
    """Yield the rows of one process that each rank may have, and those that it has.

    It may have a block of the batch, or every n-th row of it.
    """
    whole = _rows_of(reference)
    parts = {rank: rows for rank, each in held.items() if (rows := _rows_of(each)) is not None}
    if whole is None or len(parts) < len(held) or sum(map(len, parts.values())) != len(whole):
        return
    if {each.shape[1] for each in parts.values()} != {whole.shape[1]}:
        return
    ends = np.cumsum([len(each) for each in parts.values()])
    yield dict(zip(parts, np.split(whole, ends[:-1]), strict=True)), parts
    strides = {rank: whole[at :: len(parts)] for at, rank in enumerate(parts)}
    if all(len(strides[rank]) == len(each) for rank, each in parts.items()):
        yield strides, parts


def _rows_of(values: Values) -> Array | None:
    """Return the data of the first step as rows of numbers; None where none is kept."""
    calls = [*arrays_by_name(values, 0, "in").values()]
    if not calls or len({each.shape[1:] for each in calls}) > 1:
        return None
    rows = np.concatenate(calls)
    return rows.reshape(len(rows), -1).astype(float)


def _is_rescaled(rows: Array, part: Array) -> bool:
    """Whether each column of a part is that of some rows times a positive number, plus another."""
    if len(rows) != len(part) or (len(rows) - 2) * rows.shape[1] < FEW_FREE:
        return False
    x, y = rows - rows.mean(0), part - part.mean(0)
    power = (x * x).sum(0)
    times = (x * y).sum(0) / np.where(power, power, 1.0)
    return bool((times > 0)[power > 0].all()) and _is_near(times * x, y)


class Meaning(Struct, frozen=True):
    """What a value is in place of that of one process, in words, and what to do."""

    cause: Cause
    words: str
    hint: str


class Deviation(Struct, frozen=True, kw_only=True):
    """A value of a rank that is off, relative to the largest of its kind, and how far it may be."""

    step: int
    kind: str
    rank: int
    name: str
    off: float
    bound: float
    #: from which it is wrong for sure
    wrong: float

    @property
    def sure(self) -> bool:
        """Whether no rounding makes it."""
        return self.off > self.wrong


def find_deviations(
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
    noise: Mapping[tuple[int, str, str], float],
    sent: float = 0.0,
) -> Iterator[Deviation]:
    """Yield values that are not the reference's: step by step, gradients before weights.

    Gradients come in the order of the backward pass, the last parameter first. `sent` is the unit
    roundoff of the precision in which ranks send gradients.
    """
    for step in sorted(reference):
        coarse = find_coarsest([reference, *held.values()], step)
        for kind in ("gradient", "after"):
            wholes = arrays_by_name(reference, step, kind)
            for rank, values in held.items():
                numbers = records[rank].names
                named = sorted(
                    arrays_by_name(values, step, kind).items(),
                    key=_number_in(numbers),
                    reverse=kind == "gradient",
                )
                for name, got in named:
                    at = layout[rank].get(name)
                    whole = wholes.get(at.name) if at is not None else None
                    if at is None or whole is None:
                        continue
                    rough = max(COARSE * coarse, SENT * sent) * LATER**step
                    where = (reference, values, name)
                    shaken = MEASURED * noise.get((step, "gradient", at.name), 0.0)
                    least = min(max(rough, shaken), ABOUT) if rough else 0.0
                    off, bound = _distance(kind, step, got, whole, at, where, least)
                    apart = noise.get((step, kind, at.name), 0.0)
                    measured = MEASURED * apart
                    sure = MEASURED_SURE if coarse else SURE
                    # a bound as large as a whole gradient would explain all
                    few = min(measured, max(ABOUT, MEASURED_SURE * apart)) if coarse else measured
                    if off > (most := max(bound, rough, few)):
                        yield Deviation(
                            step=step,
                            kind=kind,
                            rank=rank,
                            name=name,
                            off=off,
                            bound=most,
                            wrong=max(SURE * bound, COARSE_SURE * rough, sure * measured),
                        )


def leave_out_reduced(
    deviations: Sequence[Deviation],
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
) -> list[Deviation]:
    """Return deviations without gradients that an optimizer reduces itself, to right weights.

    It gets each rank's own: the sum over ranks is the reference's, and so is the weight after it.
    Or a part of another shape than the parameter's: what a DTensor's backward leaves to be summed.
    """
    off = {(each.step, each.rank, each.name) for each in deviations if each.kind == "after"}
    return [
        each
        for each in deviations
        if each.kind == "after"
        or (each.step, each.rank, each.name) in off
        or (
            each.off < float("inf")
            and _explain(each, reference, held, layout).cause is not Cause.OWN
        )
    ]


def is_left_apart(
    each: Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> bool:
    """Whether a gradient is a rank's own, and the mean over ranks alone is the reference's.

    However much a lower precision rounds: it rounds what ranks have reduced alike.
    """
    if each.kind != "gradient" or not ABOUT < each.off < float("inf"):
        return False
    at = layout[each.rank][each.name]
    wanted = at.part_of(arrays_by_name(reference, each.step, each.kind)[at.name]).astype(float)
    size = float(np.abs(wanted).max(initial=0.0))
    parts = [
        part.astype(float)
        for rank, values in held.items()
        for name, part in arrays_by_name(values, each.step, each.kind).items()
        if layout[rank].get(name) == at and part.shape == wanted.shape
    ]
    if len(parts) < 2 or wanted.size < FEW:
        return False
    mean = np.mean(parts, axis=0)
    is_right = _is_near(mean, wanted, ABOUT * min(each.off, 1.0))
    return is_right and all(float(np.abs(part - mean).max()) > ABOUT * size for part in parts)


def measure_noise(
    reference: Values, disturbed: Sequence[Values]
) -> dict[tuple[int, str, str], float]:
    """Return how far each gradient and weight is off where modules round otherwise."""
    found: dict[tuple[int, str, str], float] = {}
    for step in reference:
        for kind in ("gradient", "after"):
            for name, whole in arrays_by_name(reference, step, kind).items():
                at = Arrangement(name=name)
                for other in disturbed:
                    got = arrays_by_name(other, step, kind).get(name)
                    if got is not None:
                        off, _ = _distance(kind, step, got, whole, at, (reference, other, name))
                        found[step, kind, name] = max(found.get((step, kind, name), 0.0), off)
    return found


def bound_of(value: Array, step: int) -> float:
    """Return how far a value may be off, relative to its largest element, by rounding alone."""
    root = float(max(max(value.shape, default=1), 16)) ** 0.5
    return float(SLACK * EPS.get(str(value.dtype), 2.0**-24) * root * LATER**step)


def size_of_gradients(sides: Iterable[Values], step: int) -> float:
    """Return the size below which a gradient is what cancels out of larger ones."""
    largest = [
        float(np.abs(each.astype(float)).max(initial=0.0))
        for values in sides
        for each in arrays_by_name(values, step, "gradient").values()
    ]
    return CANCELLED * max(largest, default=0.0)


def _distance(
    kind: str,
    step: int,
    got: Array,
    whole: Array,
    at: Arrangement,
    where: Any,
    least: float = 0.0,
) -> tuple[float, float]:
    """Return how far a value is off, relative to the largest of its whole, and the bound.

    Of a weight without the elements whose gradient is less than what a lower precision may do to
    it (`least`, of the largest): the sign is Adam's first step, and rounding decides it.
    """
    bound = bound_of(whole, step)
    wanted = at.part_of(whole).astype(float)
    if got.shape != wanted.shape:
        return float("inf"), bound
    if not _are_finite_alike(got, wanted):
        return float("inf"), bound
    got, wanted, whole = map(_set_finite, (got, wanted, whole))
    if kind == "gradient":
        size = float(np.abs(whole.astype(float)).max(initial=0.0))
        size = max(size, size_of_gradients([where[0]], step))
        apart = float(np.abs(got.astype(float) - wanted).max(initial=0.0))
        return (apart / size if size else apart), bound
    reference, values, name = where
    before = _weights_before(reference, step, at.name)
    mine = _weights_before(values, step, name)
    if before is None or mine is None:
        return 0.0, bound
    moved = wanted - _set_finite(at.part_of(before).astype(float))
    own = got.astype(float) - _set_finite(mine.astype(float))
    gradient = arrays_by_name(reference, step, "gradient").get(at.name)
    if least and gradient is not None:
        steep = np.abs(gradient.astype(float))
        largest = max(float(steep.max(initial=0.0)), size_of_gradients([reference], step))
        is_told = at.part_of(steep) > least * largest
        moved, own = moved[is_told], own[is_told]
    size = float(np.linalg.norm(moved))
    apart = float(np.linalg.norm(own - moved))
    # Adam's first step is a sign: single elements near zero say nothing, the whole step does
    scale = float(np.abs(wanted).max(initial=0.0)) * EPS.get(str(whole.dtype), 2.0**-24)
    floor = 4 * scale * moved.size**0.5
    return (max(apart - floor, 0.0) / size if size else 0.0), max(bound, 1e-3)


def _weights_before(values: Values, step: int, name: str) -> Array | None:
    """Return a weight as a step found it: what the last one left, or its first value."""
    left = next(
        (
            own[f"after/{name}"]
            for at in range(step - 1, -1, -1)
            if f"after/{name}" in (own := values.get(at, {}))
        ),
        None,
    )
    return find_first_weights(values).get(name) if left is None else left


def choose_deviation(sure: Sequence[Deviation], reference: Values, layout: Layout) -> Deviation:
    """Return the deviation that shows most of those of the first kind: one number says nothing."""
    first = sure[0]
    alike = [each for each in sure if (each.step, each.kind) == (first.step, first.kind)]
    wholes = arrays_by_name(reference, first.step, first.kind)
    return next((e for e in alike if wholes[layout[e.rank][e.name].name].size > 1), first)


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
    for event in reversed([*_list_first_calls(record, first.step)]):
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


def make_finding(
    first: Deviation,
    sure: Sequence[Deviation],
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    records: Records,
) -> ValueFinding:
    """Return a deviation as a finding: what the value is, and the line that is to blame."""
    what = "the gradient of" if first.kind == "gradient" else "the weight"
    step = next(
        (s for s in records[first.rank].steps if s.turn == first.step),
        records[first.rank].steps[0],
    )
    record = records[first.rank]
    known = _describe(first, reference, held, layout, records, step)
    cause, words, hint = known.cause, known.words, known.hint
    frames = _frames_to_blame(first, record, step, cause)
    changed = _frames_of_change(record, step, first.name, cause)
    is_changed = leaves_right(first, reference, held, layout) and _is_changed(first, held)
    if mixing := _find_mixing(first, record, step, layout):
        frames = record.places.get(mixing.place, ())
        words = (
            f"is not what one process has: {ranks_text(mixing.ranks)} hold other parts of this "
            "parameter, and their gradients are reduced together"
        )
        hint = "reduce over the ranks that hold the same part alone, where there are several"
    elif scales := _tell_scales(first, reference, held, layout):
        frames = _frames_of_clip(record, step) or _frames_of_writes(record, step)
        words, hint = scales
    elif cause is Cause.ROOT:
        frames = _frames_of_clip(record, step) or _frames_of_writes(record, step) or frames
    elif is_changed and (clip := _find_lone_clip(first, records)):
        frames = record.places.get(clip[first.rank].place, ())
        shown = list_by_rank({r: f"{e.norm:.4g}" for r, e in clip.items()})
        words += ", though what backward leaves is right: each rank clips it by a norm of its own "
        words += f"({shown}) before it is reduced"
        hint = "reduce gradients before they are clipped: then each rank has the same norm"
    elif is_changed and cause not in {Cause.OWN, Cause.OWN_IN_OPTIMIZER}:
        frames = changed
        words += ", though what backward leaves is right: it is changed before the optimizer"
        if cause is not Cause.SHIFTED:
            hint = _tell_change(cause)
    elif (
        cause in {Cause.MULTIPLE, Cause.ABOUT_A_MULTIPLE}
        and not is_on_several(first, layout)
        and layout[first.rank][first.name].flat is None
    ):
        frames = _frames_of_writes(record, step)
        hint = (
            "divide what one rank alone has of all ranks' rows by the ranks, too: each rank's loss "
            "is the mean of its own rows"
        )
    elif again := _find_reductions(record, step, first.name):
        frames = record.places.get(again[-1].place, ())
        words += f": it is reduced {len(again)} times in a step, each time with what was before"
        hint = "reduce once, after the last microbatch"
    elif (
        cause is Cause.UNLIKE
        and first.kind == "gradient"
        and first.rank not in find_stages(records)
        and (edge := find_backward_edge(first, sure, record, layout))
    ):
        frames = record.places.get(edge.call.place, ())
        words += f"; the loss is right, and so are the gradients of {list_names(edge.right)}"
        hint = _advise_on_edge(edge)
    return ValueFinding(
        code="not_equivalent",
        message=f"step {first.step}: {what} `{first.name}` on rank {first.rank} {words}"
        f"{_tell_size(first)}",
        ranks=(first.rank,),
        rank=first.rank,
        place=step.place,
        frames=frames,
        hint=hint,
        turn=first.step,
        name=first.name,
        cause=cause,
        is_measured=bool(np.isfinite(first.off)),
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
    known = _explain(first, reference, held, layout, order)
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


def _tell_size(first: Deviation) -> str:
    """Return how far a value is off, in words; nothing where it cannot be computed."""
    times = first.off / first.bound
    return f" ({times:.3g} times what rounding does)" if np.isfinite(times) else ""


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
    return any(_is_near(mean, factor * wanted, apart) for factor in factors)


def is_about_a_multiple(
    first: Deviation, reference: Values, held: Mapping[int, Values], layout: Layout
) -> bool:
    """Whether a gradient is n or 1/n times what one process has on n ranks, more or less.

    No perturbation of weights and no average of them makes it so large or so small.
    """
    if first.kind != "gradient":
        return False
    at = layout[first.rank][first.name]
    whole = arrays_by_name(reference, first.step, "gradient").get(at.name)
    got = arrays_by_name(held[first.rank], first.step, "gradient").get(first.name)
    if whole is None or got is None or len(held) < 2:
        return False
    wanted, found = at.part_of(whole).astype(float), got.astype(float)
    return found.shape == wanted.shape and any(
        np.linalg.norm(found - times * wanted) < ABOUT * np.linalg.norm(times * wanted)
        for times in (len(held), 1 / len(held))
    )


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


def _frames_of_change(
    record: ValueRecord, step: OptimizerStep, name: str, cause: Cause
) -> tuple[tuple[str, int, str], ...]:
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


def _frames_of_clip(record: ValueRecord, step: OptimizerStep) -> tuple[tuple[str, int, str], ...]:
    """Return where gradients are clipped last before a step, or nothing."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    places = [e.place for e in record.of(NormClip) if began < e.at < step.at]
    return record.places.get(places[-1], ()) if places else ()


def _frames_of_writes(record: ValueRecord, step: OptimizerStep) -> tuple[tuple[str, int, str], ...]:
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
        if not _is_near(got.astype(float), ratio * wanted):
            return None
        ratios.append(ratio)
    alike = len(ratios) > 1 and max(ratios) - min(ratios) <= OUTPUTS_APART * max(map(abs, ratios))
    return ratios[0] if alike else None


def _frames_to_blame(
    first: Deviation, record: ValueRecord, step: OptimizerStep, cause: Cause
) -> tuple[tuple[str, int, str], ...]:
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


def _explain(
    first: Deviation,
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    order: Sequence[str] = (),
) -> Meaning:
    """Return what a value is in place of the reference's.

    `order` has the reference's parameters as a bucket of all gradients would.
    """
    at = layout[first.rank][first.name]
    whole = arrays_by_name(reference, first.step, first.kind)[at.name]
    wanted = at.part_of(whole).astype(float)
    got = arrays_by_name(held[first.rank], first.step, first.kind)[first.name].astype(float)
    if first.kind != "gradient" or got.shape != wanted.shape:
        return _explain_weight(_moves(first, reference, held, at))
    if not _are_finite_alike(got, wanted):
        return Meaning(
            Cause.INFINITE,
            INFINITE,
            "look at what divides by a count of rows or tokens, or takes a logarithm or a root: of "
            "some rank's own rows it may be zero",
        )
    got, wanted = _set_finite(got), _set_finite(wanted)
    size = float(np.abs(wanted).max(initial=0.0)) or 1.0

    def is_close(value: Array, to: Array) -> bool:
        return float(np.abs(value - to).max(initial=0.0)) <= min(first.wrong, ABOUT) * size

    if not got.any():
        return Meaning(Cause.ZERO, "is zero", "let the gradient come back to this parameter")
    if times := _explain_multiple(got, wanted, len(held), is_close):
        return times
    if own := _explain_own(first, reference, held, layout, is_close):
        return own
    before = arrays_by_name(reference, first.step - 1, first.kind).get(at.name)
    if before is not None and is_close(got, at.part_of(before).astype(float)):
        return Meaning(
            Cause.STALE,
            "is that of the step before",
            "wait for the reduction before the optimizer steps",
        )
    if at.name in order and (shift := _find_shift(first, reference, at, got, is_close, order)):
        where = f"{abs(shift)} {'before' if shift < 0 else 'behind'}"
        return Meaning(
            Cause.SHIFTED,
            f"holds the elements that begin {where} its own in the order of the parameters",
            "go on by the size of each gradient where a bucket is copied back: "
            "`at += p.grad.numel()`, in the order in which it was filled",
        )
    return _explain_roughly(got, wanted, len(held))


def _explain_weight(times: str) -> Meaning:
    """Say that a weight is off, and that it moves so many times as far, where it does."""
    if times:
        return Meaning(
            Cause.UNLIKE,
            f"moves {times} times as far as in one process",
            "look at the learning rate, and at what the optimizer counts or keeps: its steps, the "
            "moments, a norm of the weight",
        )
    return Meaning(
        Cause.UNLIKE,
        UNLIKE,
        "look at what is done with its gradient: over which ranks it is reduced, what it is "
        "divided by, and what the optimizer keeps of it",
    )


def _explain_multiple(
    got: Array, wanted: Array, world: int, is_close: Callable[[Array, Array], bool]
) -> Meaning | None:
    """Say that a gradient is another one times a number; one number alone is so by a whole one."""
    power = float((wanted * wanted).sum())
    ratio = float((got * wanted).sum()) / power if power else 0.0
    if not ratio or not is_close(got / ratio, wanted):
        return None
    if wanted.size == 1 and not _is_whole(ratio):
        return None
    known = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
    root = world**0.5  # a whole one may be the size of a group
    if not root.is_integer() and abs(max(ratio, 1 / ratio) / root - 1) < OUTPUTS_APART:
        words = f"is {known} times what one process has, by the root of {world}: of as many ranks"
        hint = "where a norm clips them: sum its squares over the ranks, and divide by nothing"
        return Meaning(Cause.ROOT, words, hint)
    cause = Cause.MULTIPLE if ratio >= 1 else Cause.FRACTION
    return Meaning(
        cause if _is_whole(ratio) else Cause.SCALED,
        f"is {known} times what one process has (there are {world} ranks)",
        DIVIDED_TWICE if 0 < ratio < 1 else DIVIDE_BY_ALL,
    )


def _is_whole(ratio: float) -> bool:
    """Whether a ratio is a whole number of two or more, or one divided by it."""
    times = max(ratio, 1 / ratio)
    return round(times) > 1 and abs(times - round(times)) < OUTPUTS_APART * times


def _explain_roughly(got: Array, wanted: Array, world: int) -> Meaning:
    """Say that a gradient is about as many times another as there are ranks, or is unlike it."""
    for times in (world, 1 / world):
        if np.linalg.norm(got - times * wanted) < ROUGHLY * np.linalg.norm(times * wanted):
            known = f"{times:.4g}" if times >= 1 else f"1/{world}"
            words = f"is about {known} times what one process has (there are {world} ranks)"
            hint = "divide by the ranks once, where their gradients are summed"
            return Meaning(Cause.ABOUT_A_MULTIPLE, words, hint)
    hint = "compare how its loss is averaged: over rows, tokens and ranks"
    return Meaning(Cause.UNLIKE, UNLIKE, hint)


def _explain_own(
    first: Deviation,
    reference: Values,
    held: Mapping[int, Values],
    layout: Layout,
    is_close: Callable[[Array, Array], bool],
) -> Meaning | None:
    """Return that a gradient is a rank's own, of which the sum or the mean is the reference's."""
    at = layout[first.rank][first.name]
    wanted = at.part_of(arrays_by_name(reference, first.step, first.kind)[at.name]).astype(float)
    alike = {
        rank: arrays_by_name(values, first.step, first.kind).get(name)
        for rank, values in held.items()
        for name, each in layout[rank].items()
        if each == at
    }
    parts = [each.astype(float) for each in alike.values() if each is not None]
    if len(parts) < 2 or any(each.shape != wanted.shape for each in parts):
        return None
    total = np.sum(parts, axis=0)
    sums = {"sum": total, "mean": total / len(parts)}
    what = next((name for name, value in sums.items() if is_close(value, wanted)), "")
    if not what:
        return None
    is_kept = _leave_alike(first, held, layout)
    if is_kept and (times := _moves(first, reference, held, at)):
        words = f"the optimizer reduces it, and the weight moves {times} times as far"
        return Meaning(
            Cause.OWN_IN_OPTIMIZER,
            f"is this rank's own, {words}",
            "divide by the ranks where the optimizer sums",
        )
    words = f"the {what} over {ranks_text(tuple(alike))} is what one process has"
    hint = "reduce it over these ranks before the optimizer steps"
    return Meaning(Cause.OWN, f"is this rank's own: {words}, and nothing computes it", hint)


def _leave_alike(first: Deviation, held: Mapping[int, Values], layout: Layout) -> bool:
    """Whether a step leaves a weight equal on all ranks that hold the same part of it."""
    at = layout[first.rank][first.name]
    ends = [
        arrays_by_name(held[rank], first.step, "after").get(name)
        for rank, own in layout.items()
        for name, each in own.items()
        if each == at
    ]
    known = [each for each in ends if each is not None]
    return all(np.array_equal(known[0], each) for each in known[1:])


def _moves(first: Deviation, reference: Values, held: Mapping[int, Values], at: Arrangement) -> str:
    """Return how many times too far a weight moves, where it moves along that of one process."""
    ends = arrays_by_name(reference, first.step, "after").get(at.name)
    got = arrays_by_name(held[first.rank], first.step, "after").get(first.name)
    begins = _weights_before(reference, first.step, at.name)
    began = _weights_before(held[first.rank], first.step, first.name)
    if ends is None or got is None or begins is None or began is None:
        return ""
    wanted = (at.part_of(ends).astype(float) - at.part_of(begins)).reshape(-1)
    moved = (got.astype(float) - began).reshape(-1)
    power = float(wanted @ wanted)
    ratio = float(moved @ wanted) / power if power else 0.0
    size = float(np.abs(wanted).max(initial=0.0))
    is_along = ratio > 0 and float(np.abs(moved / ratio - wanted).max()) <= 1e-2 * size
    return f"{ratio:.3g}" if is_along and abs(ratio - 1) > 1e-2 else ""


def _find_shift(
    first: Deviation,
    reference: Values,
    at: Arrangement,
    got: Array,
    is_close: Callable[[Array, Array], bool],
    order: Sequence[str],
) -> int:
    """Return by how much a gradient is shifted in a bucket of all gradients; 0 where it is not."""
    wholes = arrays_by_name(reference, first.step, first.kind)
    named = [(name, wholes[name].astype(float).reshape(-1)) for name in order if name in wholes]
    before = [each.size for name, each in named[: [*dict(named)].index(at.name)]]
    own, flat = sum(before), got.reshape(-1)
    bucket = np.concatenate([each for _, each in named])
    starts = np.flatnonzero(np.abs(bucket - flat[0]) <= 1e-3 * float(np.abs(flat).max(initial=0.0)))
    for start in sorted(map(int, starts), key=lambda at: abs(at - own)):
        part = bucket[start : start + flat.size]
        if start != own and part.size == flat.size > 1 and is_close(flat, part):
            return start - own
    return 0
