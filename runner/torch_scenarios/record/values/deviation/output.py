"""The first module, in the order of computing, whose output is not that of one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    find_stepped,
)
from torch_scenarios.record.values.deviation.distance import (
    find_limit,
    fits_along,
    has_rows,
    is_near,
    mark_infinite,
    name_arrangement,
)
from torch_scenarios.record.values.deviation.value import find_weights_before
from torch_scenarios.record.values.format.event import ModuleOutput
from torch_scenarios.record.values.format.record import CarryingCall, ValueRecord
from torch_scenarios.record.values.invariants.finding import ValueFinding, list_names, tell_call
from torch_scenarios.record.values.roles import find_stages
from torch_scenarios.record.values.source import cuts_in_class, frames_of_return
from torch_scenarios.verdict.finding import ranks_text

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
#: torch's modules whose output depends on their weights and input alone, row by row
PLAIN = {
    *("Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "Identity", "Flatten"),
    *("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU", "Softplus"),
}


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
    for event in list_first_calls(first, step):
        name = event.module
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
        call = next(
            e for e in record.of(ModuleOutput) if e.turn == step and e.module == own_names[rank]
        )
        wrong = _WrongOutput(
            event=event,
            rank=rank,
            call=call,
            wanted=whole,
            got=present[rank],
            before=before,
            own=layout[rank],
            record=record,
            sides=(reference, held[rank]),
            apart=apart,
        )
        return _make_finding(wrong, _find_unstepped(first, records, layout, name))
    return None


class _WrongOutput(Struct, frozen=True):
    """An output that is not one process's, with the rank and the call that show it.

    `wanted` and `got` are what one process and the rank have, `before` the last module that is
    right, `own` how the rank holds each parameter.
    """

    event: ModuleOutput
    rank: int
    call: ModuleOutput
    wanted: Array
    got: Array
    before: str
    own: Mapping[str, Arrangement]
    record: ValueRecord
    sides: tuple[Values, Values]
    apart: float


def _make_finding(wrong: _WrongOutput, unstepped: Sequence[str]) -> ValueFinding:
    """Return an output as a finding; `unstepped` are weights that the optimizer of no rank has."""
    name, kind = wrong.event.module, wrong.event.module_type
    frames = frames_of_return(wrong.record.places.get(wrong.call.place, ()), kind)
    words, hint = _add_rows_again(wrong.wanted, wrong.got, wrong.apart, _explain_output(wrong))
    if unstepped:
        words += f", and no rank's optimizer steps {list_names(unstepped)}"
        hint = "give each parameter to the optimizer of a rank"
    elif (sent := _find_sent_weight(wrong.record, wrong.call.at, name)) is not None:
        frames = wrong.record.places.get(sent.place, ())
        words += f", and its weights are what this {tell_call(sent.operation)} left"
        hint = "let the rank that has stepped a weight send it: the owner, by the same rule"
    shown = f"`{name}` ({kind})" if name else f"the model ({kind})"
    return ValueFinding(
        code="not_equivalent",
        message=f"step {wrong.event.turn}, forward: the output of {shown} on "
        f"{ranks_text((wrong.rank,))} {_word_output(wrong.wanted, wrong.got, wrong.apart)}; "
        f"{words}",
        ranks=(wrong.rank,),
        rank=wrong.rank,
        place=wrong.call.place,
        frames=frames,
        hint=hint,
        turn=wrong.event.turn,
        name=name,
    )


def _explain_output(wrong: _WrongOutput) -> tuple[str, str]:
    """Return what is right before a wrong output, in words, and what to look at."""
    name, kind = wrong.event.module, wrong.event.module_type
    words = "the modules before it are right"
    hint = (
        "look at what this module sums, splits, puts in order or normalises over: the same over "
        "all ranks as in one process, and once"
    )
    if stale := _find_stale(wrong.own, name, wrong.sides, wrong.event.turn, wrong.apart):
        words += f", and {list_names(stale)} is not what one process has at this step"
        hint = (
            "look at what has written this weight since the step before: whose optimizer steps it, "
            "and what sends it to the other ranks"
        )
    elif kind in PLAIN and wrong.before and _is_whole_on(wrong.own, name):
        words += ", and so are its weights: what comes into it is not what one process has"
        hint = (
            f"look at what is done to values between `{wrong.before}` and this module: what is "
            "exchanged, split, joined or summed there, and in which order"
        )
    elif fused := _find_fused(
        wrong.record, wrong.call.place, kind, wrong.own, wrong.sides[0], name
    ):
        hint = (
            f"`{fused}` is split into one block of rows a rank, and its product is cut again here: "
            "split each of the weights that are fused in it (queries, keys and values; gate and "
            "up), and join a rank's parts"
        )
    return words, hint


def list_first_calls(first: ValueRecord, step: int) -> Iterator[ModuleOutput]:
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
    if cut is None or not all(has_rows(each, whole, cut, apart) for each in parts.values()):
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
    if not _repeats_rows(part, 0) or not has_rows(part, whole, 0, apart):
        return known
    words = f"{known[0]}, and some of its rows are there in several calls, and others in none"
    return words, KEEP_EACH_CALL


def _repeats_rows(value: Array, dimension: int) -> bool:
    """Whether a value has some slices along a dimension more than once."""
    rows = np.moveaxis(value, dimension, 0).reshape(value.shape[dimension], -1)
    return len({row.tobytes() for row in rows}) < len(rows)


def _cut_dimension(whole: Array, parts: Sequence[Array]) -> int | None:
    """Return the one dimension in which all parts have fewer rows than a whole; None otherwise."""
    found = [d for d in range(whole.ndim) if all(fits_along(each, whole, d) for each in parts)]
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
        wanted = find_weights_before(sides[0], step, at.name)
        mine = find_weights_before(sides[1], step, name)
        if wanted is None or mine is None or wanted.shape != mine.shape:
            continue
        if not is_near(mine.astype(float), wanted.astype(float), apart):
            found.append(name)
    return found


def _find_unstepped(first: ValueRecord, records: Records, layout: Layout, module: str) -> list[str]:
    """Return the parameters of a module that an optimizer steps in one process, and in no rank."""
    left = first.stepped - find_stepped(records, layout)
    return [name for name in sorted(left) if name.rpartition(".")[0] == module]


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


def output_of(values: Values, step: int, name: str) -> Array | None:
    """Return what a module gave back in a step, the rows of all its calls in order."""
    own = arrays_by_name(values, step, "out")
    calls: list[Array] = []
    while f"{name}#{len(calls)}" in own:
        calls.append(np.atleast_1d(own[f"{name}#{len(calls)}"]))
    if not calls or len({each.shape[1:] for each in calls}) > 1:
        return None
    return np.concatenate(calls).astype(float)


def _word_output(whole: Array, part: Array, apart: float) -> str:
    """Say what an output is in place of that of one process."""
    if np.isfinite(whole).all() and not np.isfinite(part).all():
        return "is not a number, or infinite, where one process has numbers"
    whole, part = mark_infinite([whole, part])
    power = float((whole * whole).sum())
    if part.shape == whole.shape and power:
        ratio = float((part * whole).sum()) / power
        if abs(ratio) > apart and is_near(part / ratio, whole, apart):
            known = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
            return f"is {known} times what one process has"
    return "is not what one process has, nor a part of it, and no sum over ranks is"
