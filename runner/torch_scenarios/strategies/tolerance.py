"""How far a trained value may be off from what one process has; words for one that is further off.

Rounding decides: float32 and coarser dtypes are computed in another order on each side. What the
terms of a sum amount to is counted where they cancel (Higham, Accuracy and Stability of Numerical
Algorithms, 4.2).
"""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeAlias
from zlib import crc32

import ml_dtypes
import numpy as np

from torch_scenarios.modules.base import Array

#: how far a value may be off: as a whole, or each element
Off: TypeAlias = float | Array

#: by how much more than rounding a value may be off: other orders of addition
SLACK = 8.0

#: and a gradient in a coarser dtype: most of what it is made of is rounded alike
COARSE_TIMES = 3.0

#: and so many units in the last place of a tensor's largest element
ULPS = 4.0

#: by how much more float32 may be off than where the optimizer steps in float64: what is further
#: off is a fault of the optimizer that shows in float32 alone, and widens no tolerance
TRUSTED = 32.0

#: the last bit of a float32 at 1
EPSILON = float(np.finfo(np.float32).eps)


def coarse_bit(*dtypes: str) -> float:
    """Return the largest spacing at 1 of dtypes that are coarser than float32; 0 where none is.

    >>> coarse_bit("float32"), coarse_bit("bfloat16", "float32")
    (0.0, 0.0078125)
    """
    found: Any = ml_dtypes.finfo
    bits = [float(found(getattr(ml_dtypes, each, each)).eps) for each in dtypes]
    return max((each for each in bits if each > EPSILON), default=0.0)


def shake(value: Array, off: Array | float = 0.0) -> Array:
    """Return a value with each last bit of float32 changed, and each element by `off` more."""
    signs = _signs(value)
    return np.asarray(value * (1 + EPSILON * signs) + off * signs)


def _signs(value: Array) -> Array:
    """Return 1 and -1, in no order that a matrix has."""
    return np.where(np.arange(value.size) * 7 % 5 % 2, 1.0, -1.0).reshape(value.shape)


def choose_directions(number: int, name: str, leans: Array) -> Array:
    """Return which way each element goes: as it leans, then at random; and the opposite of each."""
    signs = leans
    if number >= 2:
        random = np.random.default_rng([number // 2 - 1, crc32(name.encode())])
        signs = random.choice([-1.0, 1.0], leans.shape)
    return signs if number % 2 else -signs


def tolerance(
    exact: Array,
    rounded: Array,
    shaken: Array,
    bit: float = 0.0,
    size: Array | None = None,
) -> Off:
    """Return how far a value may be off that is computed in another order.

    What float32 is off by counts as far as forward and backward explain it. `bit` is the last bit
    of a dtype that is coarser than float32, where one is computed in; 0 otherwise.
    `size` is what the terms of a sum amount to: where they cancel, what rounding leaves is a part
    of them, and not of the sum (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Ranks
    round their parts of a sum to a coarse dtype, each by half of its last bit: of all terms
    together that is so much for each element.
    """
    terms = np.abs(exact) if size is None else np.maximum(size, np.abs(exact))
    parts = bit * np.nan_to_num(terms, nan=0.0, posinf=0.0) if bit and size is not None else 0.0
    off, moved = _find_farthest(exact, rounded), _find_farthest(exact, shaken)
    if not (isfinite(off) and isfinite(moved)):
        finite = np.isfinite(exact) & np.isfinite(rounded) & np.isfinite(shaken)
        exact, rounded, shaken, terms = (each[finite] for each in (exact, rounded, shaken, terms))
        off, moved = _find_farthest(exact, rounded), _find_farthest(exact, shaken)
    if not exact.size:
        return 0.0
    last = EPSILON * float(terms.max())
    off = min(off, TRUSTED * (moved + last))
    if not bit:
        return SLACK * max(off, moved) + ULPS * last
    times = SLACK if size is None else COARSE_TIMES
    return times * max(off, moved, bit * float(np.abs(exact).max())) + ULPS * last + parts


def _find_farthest(one: Array, other: Array) -> float:
    """Return the most by which elements differ; not finite where one of them is not."""
    with np.errstate(all="ignore"):
        off = np.asarray(one - other)
        return float(np.abs(off, out=off).max(initial=0.0))


def measure_distance(value: Array, exact: Array) -> float:
    """Return how far a value may be off of which float64 has another one."""
    with np.errstate(all="ignore"):
        off = np.abs(value - exact)
    off = off[np.isfinite(off)]
    return SLACK * float(off.max()) if off.size else 0.0


def bound_of(mine: Array, wanted: Array, off: Off) -> Array:
    """Return how far another implementation may be from what a rank has: both are off alike."""
    if mine.shape != wanted.shape:
        return np.broadcast_to(np.add(off, 0.0), mine.shape)
    # all steps go into one array: a weight may have a million elements
    with np.errstate(all="ignore"):
        apart = mine - wanted
        bound = np.asarray(apart, np.result_type(apart, off))
        np.minimum(np.abs(bound, out=bound), off, out=bound)
        np.fmax(bound, 0.0, out=bound)  # leaves 0 of a NaN
        bound += off
        return bound[()]


def unequal(mine: Array, wanted: Array, most: Off) -> str | None:
    """Return in words how a value is off by more than its tolerance; None where it is not."""
    if mine.shape != wanted.shape:
        return f"has shape {list(mine.shape)}, and one process has {list(wanted.shape)}"
    if not mine.size:
        return None
    with np.errstate(all="ignore"):
        off = np.array(mine, np.float64)
        np.abs(np.subtract(off, wanted, out=off), out=off)
        if bool((off <= most).all()):
            return None
        agree = (off <= most) | (np.isnan(mine) & np.isnan(wanted)) | (mine == wanted)
    if bool(agree.all()):
        return None
    worst = int(np.argmax(np.where(agree, -1.0, np.nan_to_num(off, nan=np.inf, posinf=np.inf))))
    place = list(map(int, np.unravel_index(worst, mine.shape))) if mine.ndim else ""
    has, should = float(mine.reshape(-1)[worst]), float(wanted.reshape(-1)[worst])
    prose = f"is not what one process computes: {has:.6g} at {place}, where it has {should:.6g}"
    if not mine.ndim:
        prose = f"is not what one process computes: {has:.6g}, where it has {should:.6g}"
    ratio = factor(mine, wanted, most)
    return prose if ratio is None else f"{prose}; a factor of {ratio:.3f} everywhere"


#: how far apart, as a part of them, the ratios of elements may be that are one factor
ALIKE = 1e-3


def factor(mine: Array, wanted: Array, most: Off) -> float | None:
    """Return the one factor between two values, or None."""
    large = np.abs(wanted) > np.maximum(100 * most, float(np.abs(wanted).max()) * 1e-3)
    if not large.any():
        return None
    with np.errstate(all="ignore"):
        ratios = mine.astype(np.float64)[large] / wanted[large]
    middle = float(np.median(ratios))
    if not np.isfinite(ratios).all() or abs(middle - 1) < ALIKE:
        return None
    close = bool((np.abs(ratios - middle) <= ALIKE * abs(middle)).all())
    return middle if close else None
