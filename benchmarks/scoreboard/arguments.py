"""Arguments that disagree: datatype, shape, root and operator."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, TENSOR_KINDS, Kind, Spec
from benchmarks.scoreboard.sketch import ANYTHING, PLACES, Place, Program, Sketch, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPES = (
    ("float32", "int32"),
    ("float32", "float64"),
    ("int64", "int32"),
    ("bfloat16", "float16"),
    ("uint8", "int8"),
)
ROWS = ((4, 5), (4, 3), (2, 1), (4, 40))
OPS = (
    ("sum", "max", "float32"),
    ("min", "max", "int64"),
    ("product", "sum", "float64"),
    ("avg", "sum", "float32"),
    ("band", "bor", "int64"),
    ("bxor", "sum", "int32"),
)


def programs() -> Iterator[Program]:
    """Yield the four classes."""
    for number, (kind, pair) in enumerate(product(TENSOR_KINDS, DTYPES)):
        for shift in (0, 3):
            place = PLACES[(number + shift) % len(PLACES)]
            usual, other = (Spec(dtype=name) for name in pair)
            yield from _disagree(
                number + shift, place, kind, usual, other, "datatype", "dtype_mismatch"
            )
    for number, (kind, rows) in enumerate(product(TENSOR_KINDS, ROWS)):
        for shift in (0, 3):
            place = PLACES[(number + shift) % len(PLACES)]
            usual, other = (Spec(rows=count) for count in rows)
            yield from _disagree(
                number + shift, place, kind, usual, other, "shape", "shape_mismatch"
            )
    rooted = [kind for kind in KINDS if kind.rooted]
    for number, (kind, place) in enumerate(product(rooted, PLACES)):
        for root, wrong in sorted({(0, 1), (1, 0), (0, place.size - 1)}):
            usual = Spec(root=root)
            yield from _disagree(
                number + wrong, place, kind, usual, replace(usual, root=wrong), "root"
            )
    reducing = [kind for kind in KINDS if kind.reduces]
    for number, (kind, (one, two, dtype)) in enumerate(product(reducing, OPS)):
        for shift in (0, 2, 5):
            place = PLACES[(number + shift) % len(PLACES)]
            usual = Spec(op=one, dtype=dtype)
            yield from _disagree(
                number + shift,
                place,
                kind,
                usual,
                replace(usual, op=two),
                "operator",
                "op_mismatch",
            )


def _disagree(
    number: int,
    place: Place,
    kind: Kind,
    usual: Spec,
    other: Spec,
    family: str,
    expected: str = "root_mismatch",
) -> Iterator[Program]:
    """One member passes something else than the others; in the twin all pass the same."""
    odd = place.members[number % place.size]
    later = number % 4 == 1 and not kind.objects
    apart = (number + 3) % 5 == 0

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        beliefs = {odd: other} if wrong else {}
        handle = "work" if later else None
        call(sketch, kind, "the call", spec=usual, odd=beliefs, handle=handle)
        if apart:  # the odd one's call stands in a step of its own
            step = sketch.steps[-1]
            sketch.steps += [
                {**step, "ranks": place.others(odd)},
                {**step, "name": "the call of one", "ranks": [odd]},
            ]
            sketch.steps.remove(step)
        if later:
            sketch.step("the wait", wait="work")
        if number % 2:
            sketch.step("afterwards", barrier={})
        return sketch

    told = ", ".join(
        f"{name} {before} or {after}"
        for name in ("dtype", "rows", "op", "root")
        if (before := getattr(usual, name)) != (after := getattr(other, name))
    )
    return twins(
        build,
        name=f"{kind.name} with {told} on rank {odd} of a {place.name}"
        + (", async" if later else ""),
        family=family,
        expected=(expected,),
        first="the call",
        outcomes=ANYTHING,
    )
