"""`from_local`: what each rank holds is taken for its part of a distributed tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form
from torch_scenarios.operations import distribute_tensor
from torch_scenarios.operations.base import Caller, Entry, Refusal
from torch_scenarios.operations.checks import refuse_argument, refuse_none
from torch_scenarios.operations.placement import call, normalise


class FromLocal(distribute_tensor.MeshOperation):
    """Take what each rank holds for its part of a distributed tensor: nothing is communicated.

    torch trusts: the global shape is this rank's own, times the members along each `Shard`, unless
    `shape` states it. Ranks whose parts differ in size believe in different tensors, which the next
    collective shows. With `run_check` the first member's value is broadcast along each mesh
    dimension that replicates, once all ranks of the world have told each other their dtypes.
    """

    name = "from_local"
    distributes = True
    source = "torch.distributed.tensor.DTensor.from_local"
    params = (
        distribute_tensor.TENSOR,
        distribute_tensor.DEVICE_MESH,
        distribute_tensor.PLACEMENTS,
        Param(
            name="run_check",
            kind="flag",
            default=False,
            description="Broadcast the first member's value where the placement is Replicate().",
        ),
        Param(
            name="shape",
            kind="sizes",
            description="The global shape, where the parts differ in size.",
        ),
    )
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors:
  t: "full(2, rank)"
steps:
  - from_local: {tensor: t, device_mesh: mesh, placements: [Shard(0)]}
  - full_tensor: {tensor: t}
    expect:
      t: [0, 0, 1, 1]
"""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the group of the mesh's first dimension: who is in it is in the mesh."""
        return distribute_tensor.group_of_mesh(caller, given)

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments, and what the mesh is on this rank."""
        arguments = super().evaluate(caller, given)
        arguments["mesh"] = caller.mesh(arguments["device_mesh"])
        return arguments

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no tensor, a distributed one, and placements that do not fit."""
        if entry["local"] is None:
            return refuse_none("tensor")
        if entry["layout"] is not None:
            return refuse_argument("the tensor is distributed already", "tensor")
        return distribute_tensor.refuse_placing(entry, entry["local"].ndim, len(entry["mesh"]))

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Broadcast where it is checked; else nothing."""
        local = entry["local"]
        layout = distribute_tensor.layout_of(entry, self._shape(entry))
        if entry["run_check"]:
            world = caller.group(None)
            own = {"dtype": str(local.dtype), "requires_grad": False}
            listed = [None] * world.size
            yield call("all_gather_object", world, object_list=listed, obj=own)
            local = yield from layout.replicate_from_first(local)
        return layout, local.copy()

    def _shape(self, entry: Entry) -> tuple[int, ...]:
        """Return the global shape as this rank believes it to be."""
        if entry["shape"] is not None:
            return tuple(entry["shape"])
        local, groups = entry["local"], entry["mesh"]
        shape = list(local.shape)
        for group, placement in zip(
            groups, normalise(entry["placements"] or (), local.ndim), strict=False
        ):
            if placement.is_shard:
                shape[placement.dim] *= group.size
        return tuple(shape)

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Call torch; the name holds the DTensor's local tensor afterwards."""
        more: dict[str, Any] = {}
        if entry["shape"] is not None:
            more["shape"] = torch.Size(entry["shape"])
            more["stride"] = torch.empty(entry["shape"], device="meta").stride()
        dtensor = torch.distributed.tensor.DTensor.from_local(
            entry["local"].clone(),
            mesh(entry["device_mesh"]),
            distribute_tensor.torch_placements(torch, entry["placements"]),
            run_check=entry["run_check"],
            **more,
        )
        distribute_tensor.keep_dtensor(caller, entry["tensor"], dtensor, entry["device_mesh"])
