"""The norm by which gradients are clipped is that of the whole model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Ranks, Roles, find_scattering_groups

#: relative difference of two norms that rounding does not make
NORMS_APART = 1e-5


def find_local_norms(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield clipping by norms that differ on ranks of one model, where it clips."""
    details = {rank: [*record.of_kind("clip")] for rank, record in records.items()}
    for ranks, what in _norm_groups(records, roles):
        lists = {rank: details[rank] for rank in ranks if details.get(rank)}
        if len(lists) < 2:
            continue
        for together in zip(*lists.values(), strict=False):
            norms = dict(zip(lists, (each.details[2] for each in together), strict=True))
            most = together[0].details[3]
            if any(each.details[4] for each in together) or not all(
                map(math.isfinite, norms.values())
            ):
                continue
            low, high = min(norms.values()), max(norms.values())
            if high - low <= NORMS_APART * high or not math.isfinite(most) or high <= most:
                continue
            rank = next(iter(norms))
            shown = ", ".join(f"{norm:.4g} on rank {r}" for r, norm in [*norms.items()][:4])
            yield ValueFinding(
                code="norm_is_local",
                message=f"the gradients are clipped by another norm on each rank: {shown}, and "
                f"these ranks {what}",
                ranks=tuple(lists),
                rank=rank,
                place=together[0].details[1],
                hint="take the norm of the whole model: sum the squares over its ranks and clip by "
                "the root of that; reduce gradients before they are clipped",
                turn=together[0].details[0],
            )
            return


def _norm_groups(records: Records, roles: Roles) -> Iterator[tuple[Ranks, str]]:
    parts = find_scattering_groups(records) | {*roles.model}
    parts |= {tuple(e.details[0]) for r in records.values() for e in r.of_kind("sharded")}
    for ranks in sorted(parts):
        yield ranks, "hold parts of one model"
    for ranks in roles.data:
        yield ranks, "hold replicas of one model"
