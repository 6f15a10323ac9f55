"""What a gradient or a weight is in place of that of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from torch_scenarios.record.values.arrangement import (
    Arrangement,
    Array,
    Layout,
    Values,
    arrays_by_name,
)
from torch_scenarios.record.values.deviation.distance import (
    OUTPUTS_APART,
    are_finite_alike,
    set_finite,
)
from torch_scenarios.record.values.deviation.value import ABOUT, Deviation, find_weights_before
from torch_scenarios.record.values.invariants.finding import Cause
from torch_scenarios.verdict.finding import ranks_text

#: part of a gradient by which a multiple of it may differ, where it is sent as whole numbers
ROUGHLY = 0.1
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
#: of a value that has no number at some elements
INFINITE = "is not a number, or infinite, where one process has numbers"
#: of a value of which nothing more is known
UNLIKE = "is not what one process has"


class Meaning(Struct, frozen=True):
    """What a value is in place of that of one process, in words, and what to do."""

    cause: Cause
    words: str
    hint: str


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
            and explain(each, reference, held, layout).cause is not Cause.OWN
        )
    ]


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


def explain(
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
    if not are_finite_alike(got, wanted):
        return Meaning(
            Cause.INFINITE,
            INFINITE,
            "look at what divides by a count of rows or tokens, or takes a logarithm or a root: of "
            "some rank's own rows it may be zero",
        )
    got, wanted = set_finite(got), set_finite(wanted)
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
    begins = find_weights_before(reference, first.step, at.name)
    began = find_weights_before(held[first.rank], first.step, first.name)
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
