"""Random masks: alike in a tensor-parallel group, apart on data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Ranks, Roles


def find_masks(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield random calls that must agree and do not, or agree and should not."""
    for ranks in roles.model:
        if found := _masks(records, ranks, differ=True):
            yield found
            return
    for ranks in roles.data:
        if found := _masks(records, ranks, differ=False):
            yield found
            return


def _masks(records: Records, ranks: Ranks, *, differ: bool) -> ValueFinding | None:
    lists = [[*records[rank].of_kind("rand")] for rank in ranks if rank in records]
    for together in zip(*lists, strict=False):
        states = {each.details[2] for each in together}
        inputs = {each.details[3] for each in together}
        turn, place = together[0].details[:2]
        if differ and len(inputs) == 1 and len(states) > 1:
            return ValueFinding(
                code="masks_differ",
                message="the ranks of one tensor-parallel group drop other elements of one and the "
                f"same activation at step {turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint="draw the mask of a replicated activation from one generator on all ranks of "
                "the group: seed them alike, and another seed only for activations that are split",
                turn=turn,
            )
        if not differ and len(inputs) == len(together) and len(states) == 1:
            return ValueFinding(
                code="same_mask",
                message="the data-parallel ranks draw one and the same mask for other rows at step "
                f"{turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint="seed each data-parallel rank by itself once the weights are equal: "
                "`torch.manual_seed(seed + rank)`",
                turn=turn,
                error=False,
            )
    return None
