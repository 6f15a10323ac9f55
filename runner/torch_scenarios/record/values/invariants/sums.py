"""Sums of gradients that are equal already."""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.invariants.finding import Records, ValueFinding, join_calls
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text


def find_sums_of_replicas(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield sums of gradients that are equal on all ranks, and are not divided afterwards."""
    for ranks in roles.data:
        for met in join_calls(records, ranks, lambda call: call.op == "sum"):
            tensors = [call.tensors[0] for call in met.values()]
            first = tensors[0]
            if first.carries != "gradient" or first.size < 8 or first.constant:
                continue
            if len({each.hash for each in tensors}) > 1 or not first.exact:
                continue
            rank, call = next(iter(met.items()))
            step = next((s for s in records[rank].steps if s.at > call.at), None)
            used = step.gradients.get(first.parameters[0]) if step and first.parameters else None
            if used is not None and call.results and used == call.results[0]:
                name = records[rank].parameters[first.parameters[0]].name
                yield ValueFinding(
                    code="sum_of_replicas",
                    message=f"the gradient of `{name}` is equal on {ranks_text(ranks)} already, "
                    f"and is summed: it is {len(ranks)} times what one rank has",
                    ranks=ranks,
                    rank=rank,
                    place=call.place,
                    hint="leave the all_reduce out, or divide by the size of the group",
                    turn=call.turn,
                    error=False,
                    name=name,
                )
                return
