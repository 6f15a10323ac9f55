"""The first value that is not a number."""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text

#: what has, or is, no number, as a sentence begins: in the order of computing
WHAT = {
    "output": "the output of `{}` has",
    "loss": "the loss is",
    "gradient": "the gradient of `{}` has",
}
ENTERS = "look at what enters there: a division by zero, a logarithm, a row of the data"
HINTS = {
    "output": ENTERS,
    "gradient": ENTERS,
    "loss": "look at what it divides by: a rank's own rows may have no label, and no token; sum "
    "the counts over the ranks before the division",
}


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
        firsts.items(), key=lambda each: (each[1].details[0], [*WHAT].index(each[1].details[1]))
    )
    turn, kind, name, place = first.details
    alike = [r for r, each in firsts.items() if each.details[:3] == first.details[:3]]
    scaled = any(True for record in records.values() for _ in record.of_kind("scale"))
    others = sorted(set(records) - set(alike))
    lines = [set(ranks) for ranks in roles.data if rank in ranks]
    if others and not any(line & set(others) for line in lines):
        return  # stages of a pipeline pass other values on, and some that were never set
    disagree = bool(others) and kind in {"output", "loss"}
    what = WHAT[kind].format(name)
    details = f", and not on {ranks_text(others)}" if others else ""
    yield ValueFinding(
        code="first_nan",
        message=f"{what} the first NaN or infinity, at step {turn} on {ranks_text(alike)}{details}",
        ranks=tuple(alike),
        rank=rank,
        place=place,
        hint=HINTS[kind],
        turn=turn,
        error=disagree and not scaled,
    )
