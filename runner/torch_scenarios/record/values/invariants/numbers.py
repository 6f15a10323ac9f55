"""The first value that is not a number."""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text


def find_first_nan(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield where the first value that is not a number appears."""
    firsts = {
        rank: found
        for rank, record in records.items()
        if (found := next(record.of_kind("nan"), None)) is not None
    }
    if not firsts:
        return
    rank, first = min(
        firsts.items(), key=lambda each: (each[1].details[0], each[1].details[1] != "output")
    )
    turn, kind, name, place = first.details
    alike = [r for r, each in firsts.items() if each.details[:3] == first.details[:3]]
    scaled = any(True for record in records.values() for _ in record.of_kind("scale"))
    others = sorted(set(records) - set(alike))
    lines = [set(ranks) for ranks in roles.data if rank in ranks]
    if others and not any(line & set(others) for line in lines):
        return  # stages of a pipeline pass other values on, and some that were never set
    disagree = bool(others) and kind == "output"
    what = f"the output of `{name}`" if kind == "output" else f"the gradient of `{name}`"
    details = f", and not on {ranks_text(others)}" if others else ""
    yield ValueFinding(
        code="first_nan",
        message=f"{what} has the first NaN or infinity, at step {turn} on "
        f"{ranks_text(alike)}{details}",
        ranks=tuple(alike),
        rank=rank,
        place=place,
        hint="look at what enters there: a division by zero, a logarithm, a row of the data",
        turn=turn,
        error=disagree and not scaled,
    )
