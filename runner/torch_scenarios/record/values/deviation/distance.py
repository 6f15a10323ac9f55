"""How far arrays are apart, and how the parts of ranks make up a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from torch_scenarios.record.values.arrangement import Array, Values, arrays_by_name

#: times the unit roundoff of a lower precision in which modules compute that an output may be off
COARSE_OUTPUT = 8.0
#: relative distance from which an output is not that of one process
OUTPUTS_APART = 1e-3
#: relative distance from which a loss, or a batch, is not that of one process
LOSSES_APART = 1e-4
#: numbers beyond two for each column that a rescaling of rows has to explain
FEW_FREE = 8
#: unit roundoffs of the precisions in which modules compute
EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


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


def name_arrangement(whole: Array, parts: Sequence[Array], apart: float = OUTPUTS_APART) -> str:
    """Return how parts make up a whole, in words; nothing where they do not.

    They are the whole, its slices along a dimension, or sums of these to come, up to a distance
    relative to the largest element. What no arrangement of these kinds can be is not known, and
    counts as arranged.
    """
    whole, *parts = mark_infinite([whole, *parts])
    suits = False
    for some in _sums(parts):
        more = "" if len(some) == len(parts) else f"; summed over {len(parts) // len(some)} ranks"
        if all(each.shape == whole.shape for each in some):
            suits = True
            if all(is_near(each, whole, apart) for each in some):
                return f"the whole{more}"
        for dimension in range(whole.ndim):
            if all(fits_along(each, whole, dimension) for each in some):
                suits = True
                if all(has_rows(each, whole, dimension, apart) for each in some):
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


def are_finite_alike(one: Array, other: Array) -> bool:
    """Whether two values have infinities, and what is not a number, at the same elements."""
    own, others = (each[~np.isfinite(each)] for each in (one, other))
    alike = np.array_equal(np.isfinite(one), np.isfinite(other))
    return alike and np.array_equal(own.astype(float), others.astype(float), equal_nan=True)


def set_finite(value: Array) -> Array:
    """Return a value with zero where it has no finite number."""
    finite = np.isfinite(value)
    return value if finite.all() else np.where(finite, value, np.zeros_like(value))


def mark_infinite(values: Sequence[Array]) -> list[Array]:
    """Return values with numbers beyond their own in place of infinities and of no numbers.

    A mask of scores is minus infinity: its difference from itself would be no number.
    """
    if all(np.isfinite(each).all() for each in values):
        return [*values]
    finite = [each[np.isfinite(each)] for each in values]
    most = max(float(np.abs(each).max(initial=0.0)) for each in finite) or 1.0
    return [np.nan_to_num(each, nan=3 * most, posinf=2 * most, neginf=-2 * most) for each in values]


def is_near(one: Array, other: Array, apart: float = OUTPUTS_APART) -> bool:
    """Whether two values differ by no more than a part of the largest element of the other."""
    one, other = mark_infinite([one, other])
    size = float(np.abs(other).max(initial=0.0)) or 1.0
    return float(np.abs(one - other).max(initial=0.0)) <= apart * size


def fits_along(part: Array, whole: Array, dimension: int) -> bool:
    """Whether a part differs from a whole in the size of one dimension alone."""
    if part.ndim != whole.ndim or part.shape[dimension] >= whole.shape[dimension]:
        return False
    return all(
        a == b
        for at, (a, b) in enumerate(zip(part.shape, whole.shape, strict=True))
        if at != dimension
    )


def has_rows(part: Array, whole: Array, dimension: int, apart: float) -> bool:
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
            return next((r for r, each in parts.items() if not is_near(each, own[r])), None)
    return None


def has_near_rows(reference: Values, held: Mapping[int, Values]) -> bool:
    """Whether the rows of all ranks are those of one process, but for rounding."""
    return any(
        all(is_near(each, own[rank], LOSSES_APART) for rank, each in parts.items())
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
    return bool((times > 0)[power > 0].all()) and is_near(times * x, y)
