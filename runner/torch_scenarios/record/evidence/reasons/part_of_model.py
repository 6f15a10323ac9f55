"""Calls of one line that carry different parts of a model: a gradient, a unit of FSDP."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason
from torch_scenarios.record.evidence.reasons.earlier_condition import find_last_decided
from torch_scenarios.verdict.finding import ranks_text


def list_parts(parted: Parted) -> str:
    """Return what each rank passes: `rank 0 passes the gradient of head.weight; ...`."""
    return "; ".join(
        f"{ranks_text(ranks)} {'passes' if len(ranks) == 1 else 'pass'} {part}"
        for part, ranks in parted.parting.parts.items()
    )


def find_part(parted: Parted) -> Reason | None:
    """Return the last `if` that ranks decided otherwise before their parts of a model differ.

    None where their calls come from several lines, or carry the same.
    """
    if len(parted.parting.sides) > 1 or len(parted.parting.parts) < 2:
        return None
    fix = (
        "let every rank pass the same parameters in the same order: use each layer in each forward "
        "pass, and reduce zeros for a gradient that is None."
    )
    earlier = find_last_decided(parted, by_all=True, whole=True)
    return (earlier[0] if earlier else Clause("their models have other gradients")), fix
