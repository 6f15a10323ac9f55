"""Scales of gradients: ranks of one model skip the same steps.

A GradScaler lowers its scale and skips a step where it finds an infinity in the rank's own
gradients. Ranks that hold replicas or parts of one model must find it together: a scaler that
looks at a shard, or at gradients before they are reduced, lets one rank skip a step that the
others do, and the replicas drift apart. Scalers that find no infinity, or find it on all ranks
at once, have one scale throughout.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.format.event import LossScale
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding, part_ranks
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text


def find_scales_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield scalers of gradients that do not go on alike on ranks of one model."""
    steps = {rank: record.of(LossScale) for rank, record in records.items()}
    for ranks in (*roles.data, *roles.model):
        lists = {rank: steps[rank] for rank in ranks if steps.get(rank)}
        if len(lists) < 2:
            continue
        for together in zip(*lists.values(), strict=False):
            now = {rank: (e.scale, e.skips) for rank, e in zip(lists, together, strict=True)}
            if len(set(now.values())) == 1:
                continue
            skipped = [rank for rank, (_, skips) in now.items() if skips]
            scales = ", ".join(f"{scale:g} on rank {rank}" for rank, (scale, _) in now.items())
            rank = skipped[0] if skipped else part_ranks(now)[-1][0]
            step = together[[*lists].index(rank)]
            skips = f"; {ranks_text(skipped)} skipped the step" if skipped else ""
            yield ValueFinding(
                code="replicas_differ",
                message=f"each rank scales its gradients by itself: the scale is {scales} at step "
                f"{step.turn}{skips}, and the ranks train one model",
                ranks=tuple(lists),
                rank=rank,
                place=step.place,
                hint="reduce what the scaler found (all_reduce of `found_inf`, "
                "torch.distributed.fsdp.sharded_grad_scaler), or unscale after the gradients are "
                "reduced, so that all ranks skip the same steps",
                turn=step.turn,
            )
            return
