"""`redistribute`: a distributed tensor comes to lie otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import Caller, Entry, Refusal
from torch_scenarios.operations.checks import refuse_argument
from torch_scenarios.operations.distribute_tensor import (
    PLACEMENTS,
    TENSOR,
    MeshOperation,
    keep_dtensor,
    name_in,
    torch_placements,
)
from torch_scenarios.operations.placement import Layout, normalise


class DTensorOperation(MeshOperation):
    """What the operations on a tensor have in common that is distributed already."""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the group of the first dimension of the mesh on which the tensor lies."""
        layout = caller.layouts.get(name_in(given))
        groups = caller.mesh(layout.mesh) if layout is not None else ()
        return groups[0].name if groups else None

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """A rank outside of a mesh has no part of what lies on it."""
        return name_in(given) in caller.layouts or not caller.is_outside_of_a_mesh()


class Redistribute(DTensorOperation):
    """Move a distributed tensor to other placements on the same mesh.

    Each mesh dimension that changes is a call on its group, or none: `Replicate()` is cut without
    a word, a shard is gathered, a `Partial` is reduced. `explain` of a report shows the calls.
    """

    name = "redistribute"
    source = "torch.distributed.tensor.DTensor.redistribute"
    params = (TENSOR, PLACEMENTS)
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors:
  t: "reshape(arange(4), [2, 2])"
steps:
  - distribute_tensor: {tensor: t, device_mesh: mesh, placements: [Shard(0)]}
  - redistribute: {tensor: t, placements: [Shard(1)]}
    expect:
      t: {0: [[0], [2]], 1: [[1], [3]]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a tensor that is not distributed, and placements that torch does not make."""
        layout, goal = entry["layout"], entry["placements"]
        if layout is None:
            return refuse_argument(f"{entry['tensor']} is not distributed on this rank", "tensor")
        if isinstance(goal, str):
            return refuse_argument(goal, "placements")
        if goal is None:
            return refuse_argument("placements are needed")
        if not isinstance(layout, Layout):
            return None
        refused = layout.impassable(goal)
        return None if refused is None else refuse_argument(refused, "placements")

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Make the calls of each transition."""
        layout = entry["layout"]
        goal = normalise(entry["placements"], len(layout.shape))
        local = yield from layout.redistribute(goal, entry["local"])
        return layout.replace_placements(goal), local

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Call torch; the name holds the new local tensor afterwards."""
        goal = torch_placements(torch, entry["placements"])
        dtensor = find_dtensor(entry).redistribute(placements=goal)
        keep_dtensor(caller, entry["tensor"], dtensor, entry["layout"].mesh)


def find_dtensor(entry: Entry) -> Any:
    """Return the DTensor of a step, in the worker."""
    if entry["layout"] is None:
        message = f"{entry['tensor']} is not distributed on this rank"
        raise ValueError(message)
    return entry["layout"].dtensor
