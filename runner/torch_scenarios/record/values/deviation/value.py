"""Gradients and weights that are not one process's, each within a bound of what rounding does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from torch_scenarios.record.values.deviation.distance import (
    EPS,
    are_finite_alike,
    find_coarsest,
    is_near,
    set_finite,
)

#: times the unit roundoff and the root of the fan-in that a value may be off; times that, from
#: which it is wrong for sure
SLACK, SURE = 16.0, 100.0
#: times the unit roundoff of a lower precision in which modules compute that a value may be off;
#: times that, from which it is wrong for sure
COARSE, COARSE_SURE = 2.0, 10.0
#: times the unit roundoff of the precision in which gradients are sent that a value may be off;
#: wrong for sure is what is off by COARSE_SURE times that
SENT = 4.0
#: times of what disturbed runs of the reference change that a value may be off; times that, from
#: which it is wrong for sure where modules compute in a lower precision
MEASURED, MEASURED_SURE = 8.0, 2.0
#: part of the largest gradient of a step below which one is compared with that part: a bias before
#: a norm, whose gradient is zero but for rounding
CANCELLED = 1e-2
#: how much more may be off a step later
LATER = 4.0
#: part of a gradient by which another may differ, and be about the same
ABOUT = 0.25
#: elements of a tensor that say too little by chance
FEW = 16


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
    is_right = is_near(mean, wanted, ABOUT * min(each.off, 1.0))
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
    if not are_finite_alike(got, wanted):
        return float("inf"), bound
    got, wanted, whole = map(set_finite, (got, wanted, whole))
    if kind == "gradient":
        size = float(np.abs(whole.astype(float)).max(initial=0.0))
        size = max(size, size_of_gradients([where[0]], step))
        apart = float(np.abs(got.astype(float) - wanted).max(initial=0.0))
        return (apart / size if size else apart), bound
    reference, values, name = where
    before = find_weights_before(reference, step, at.name)
    mine = find_weights_before(values, step, name)
    if before is None or mine is None:
        return 0.0, bound
    moved = wanted - set_finite(at.part_of(before).astype(float))
    own = got.astype(float) - set_finite(mine.astype(float))
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


def find_weights_before(values: Values, step: int, name: str) -> Array | None:
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


def _number_in(numbers: Mapping[str, int]) -> Callable[[tuple[str, Array]], int]:
    return lambda each: numbers.get(each[0], 0)


def choose_deviation(sure: Sequence[Deviation], reference: Values, layout: Layout) -> Deviation:
    """Return the deviation that shows most of those of the first kind: one number says nothing."""
    first = sure[0]
    alike = [each for each in sure if (each.step, each.kind) == (first.step, first.kind)]
    wholes = arrays_by_name(reference, first.step, first.kind)
    return next((e for e in alike if wholes[layout[e.rank][e.name].name].size > 1), first)


def tell_size(first: Deviation) -> str:
    """Return how far a value is off, in words; nothing where it cannot be computed."""
    times = first.off / first.bound
    return f" ({times:.3g} times what rounding does)" if np.isfinite(times) else ""
