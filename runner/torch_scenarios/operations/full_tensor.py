"""`full_tensor`: a distributed tensor, whole on every rank of its mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_scenarios.operations.base import Caller, Entry, Refusal
from torch_scenarios.operations.checks import refuse_argument
from torch_scenarios.operations.distribute_tensor import TENSOR, keep
from torch_scenarios.operations.placement import REPLICATE
from torch_scenarios.operations.redistribute import DTensorOperation, find_dtensor


class FullTensor(DTensorOperation):
    """Gather a distributed tensor: the name holds all of it afterwards, on every rank of the mesh.

    It is `redistribute` to `Replicate()` everywhere, and a plain tensor from then on.
    """

    name = "full_tensor"
    source = "torch.distributed.tensor.DTensor.full_tensor"
    params = (TENSOR,)
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors:
  t: "arange(3)"
steps:
  - distribute_tensor: {tensor: t, device_mesh: mesh, placements: [Shard(0)]}
  - full_tensor: {tensor: t}
    expect:
      t: [0, 1, 2]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a tensor that is not distributed."""
        if entry["layout"] is None:
            return refuse_argument(f"{entry['tensor']} is not distributed on this rank", "tensor")
        return None

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Make the calls of each transition to Replicate()."""
        layout = entry["layout"]
        goal = (REPLICATE,) * len(layout.placements)
        local = yield from layout.redistribute(goal, entry["local"])
        return None, local

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Call torch; the name holds a plain tensor afterwards."""
        keep(caller, entry["tensor"], find_dtensor(entry).full_tensor(), None)
