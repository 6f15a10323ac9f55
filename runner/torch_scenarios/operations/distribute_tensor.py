"""`distribute_tensor`: a tensor is cut over a device mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form, wrong_value
from torch_scenarios.operations.base import Caller, Compound, Entry, Refusal
from torch_scenarios.operations.checks import refuse_argument, refuse_none
from torch_scenarios.operations.placement import (
    REPLICATE,
    Layout,
    Placement,
    chunks,
    cut,
    encode,
    layout_name,
    normalise,
    partition,
    placement_of,
    read_torch_placements,
    unplaceable,
)

TENSOR = Param(
    name="tensor",
    kind="held",
    required=True,
    description="The name that holds this rank's local tensor afterwards.",
)
DEVICE_MESH = Param(
    name="device_mesh",
    kind="mesh",
    required=True,
    description="The mesh: an entry of `groups:` with `shape` and `dims`, or one dimension of it.",
)
PLACEMENTS = Param(
    name="placements",
    kind="placements",
    description="A placement for each mesh dimension; Replicate() where left out.",
)


class MeshOperation(Compound):
    """What the operations on distributed tensors have in common: they rebind one name."""

    def label(self, entry: Entry) -> str:
        """Name the call by itself: its groups are those of a mesh."""
        return self.name

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The name of the tensor: it holds another local tensor afterwards, and lies otherwise."""
        name = name_in(given)
        return (name, layout_name(name))

    def roots(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, frozenset[str]]:
        """The tensor is all that is looked at."""
        return {"tensor": frozenset({name_in(given)})}

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments; the layout is what the rank knows of the tensor so far."""
        arguments = super().evaluate(caller, given)
        name = arguments["tensor"]
        arguments["placements"] = read_placements(arguments.get("placements"))
        arguments["layout"] = caller.layouts.get(name)
        arguments["local"] = local = caller.scope.get(name)
        if isinstance(local, list):
            raise ScenarioError(
                [wrong_value(replace(TENSOR, kind="tensor"), given["tensor"].mark, caller.rank)]
            )
        return arguments

    def run(self, caller: Caller, entry: Entry) -> None:
        """Hold the local tensor, and know how it lies."""
        layout, local = entry["result"]
        keep(caller, entry["tensor"], local, layout)


def name_in(given: Mapping[str, Form]) -> str:
    """Return the name of the tensor of a step."""
    return str(getattr(given["tensor"], "value", ""))


def read_placements(given: Any) -> Any:
    """Return placements; a text where one cannot be read, None where none are given."""
    if given is None:
        return None
    listed = given if isinstance(given, list | tuple) else [given]
    try:
        return tuple(placement_of(str(each)) for each in listed)
    except ValueError as error:
        return str(error)


def keep(caller: Caller, name: str, local: Any, layout: Layout | None) -> None:
    """Let a name hold a local tensor; `layout` None: one that is distributed no more."""
    caller.hold(name, local)
    _keep_code(caller, name, () if layout is None else layout.placements)
    if layout is not None:
        caller.layouts[name] = layout


def _keep_code(caller: Caller, name: str, lies: tuple[Placement, ...]) -> None:
    caller.hold(layout_name(name), caller.arrays.array([encode(lies)], "int64"))


class MeshTensor(Struct, frozen=True, kw_only=True):
    """A DTensor in the worker, and the name of the mesh on which it lies."""

    mesh: str
    dtensor: Any


def keep_dtensor(caller: Caller, name: str, dtensor: Any, mesh: str) -> None:
    """Let a name hold the local tensor of a DTensor, in the worker."""
    caller.hold(name, dtensor.to_local())
    _keep_code(caller, name, read_torch_placements(dtensor) or ())
    caller.layouts[name] = MeshTensor(mesh=mesh, dtensor=dtensor)


def torch_placements(torch: Any, placements: Any) -> Any:
    """Return torch's own objects for placements; None stays None."""
    if placements is None:
        return None
    tensor = torch.distributed.tensor
    return [_torch_placement(tensor, each) for each in placements]


def _torch_placement(tensor: Any, placement: Placement) -> Any:
    if placement.is_shard:
        return tensor.Shard(placement.dim)
    return tensor.Partial(placement.op) if placement.is_partial else tensor.Replicate()


def refuse_placing(entry: Entry, ndim: int, mesh_dims: int) -> Refusal | None:
    """Refuse placements that are unknown, or that do not fit the tensor or the mesh."""
    placements = entry["placements"]
    if isinstance(placements, str):
        return refuse_argument(placements, "placements")
    if placements is None:
        return None
    refused = unplaceable(placements, ndim, mesh_dims)
    return None if refused is None else refuse_argument(refused, "placements")


class DistributeTensor(MeshOperation):
    """Cut a tensor over a device mesh: each rank ends with its part under the same name.

    As torch does, the first member of each mesh dimension gives its tensor to the others: what they
    held is ignored. With `src_data_rank: null` nothing is communicated, and each rank cuts its own.
    Parts are those of `torch.chunk`: 5 rows over 3 ranks are 2, 2 and 1.
    """

    name = "distribute_tensor"
    distributes = True
    source = "torch.distributed.tensor.distribute_tensor"
    params = (
        TENSOR,
        DEVICE_MESH,
        PLACEMENTS,
        Param(
            name="communicate",
            kind="flag",
            default=True,
            description="False is torch's `src_data_rank=None`: each rank cuts what it holds.",
        ),
    )
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors:
  t: "arange(3)"
steps:
  - distribute_tensor: {tensor: t, device_mesh: mesh, placements: [Shard(0)]}
    expect:
      t: {0: [0, 1], 1: [2]}
"""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the group of the mesh's first dimension: who is in it is in the mesh."""
        return group_of_mesh(caller, given)

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no tensor, one that is distributed already, and placements that do not fit."""
        if entry["local"] is None:
            return refuse_none("tensor")
        if entry["layout"] is not None:
            return refuse_argument(
                "the tensor is distributed already: `redistribute` moves it", "tensor"
            )
        refused = refuse_placing(entry, entry["local"].ndim, len(entry["mesh"]))
        if refused is not None:
            return refused
        return _refuse_partial(entry["placements"] or ())

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments, and what the mesh is on this rank."""
        arguments = super().evaluate(caller, given)
        arguments["mesh"] = caller.mesh(arguments["device_mesh"])
        return arguments

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Scatter, or broadcast, along each mesh dimension in turn."""
        layout = layout_of(entry, entry["local"].shape)
        if entry["communicate"]:
            local = yield from layout.distribute(entry["local"])
        else:
            local = _take_own_part(layout, entry["local"])
        return layout, local

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Call torch; the name holds the DTensor's local tensor afterwards."""
        more = {} if entry["communicate"] else {"src_data_rank": None}
        dtensor = torch.distributed.tensor.distribute_tensor(
            entry["local"],
            mesh(entry["device_mesh"]),
            torch_placements(torch, entry["placements"]),
            **more,
        )
        keep_dtensor(caller, entry["tensor"], dtensor, entry["device_mesh"])


def group_of_mesh(caller: Caller, given: Mapping[str, Form]) -> str | None:
    """Return the name of the group of a mesh's first dimension."""
    name = caller.evaluate(given.get("device_mesh"))
    groups = caller.mesh(name) if name is not None else ()
    return groups[0].name if groups else name


def layout_of(entry: Entry, shape: tuple[int, ...]) -> Layout:
    """Return how a tensor of that global shape lies where the step says so."""
    groups = entry["mesh"]
    placements = entry["placements"] or (REPLICATE,) * len(groups)
    return Layout(
        mesh=entry["device_mesh"],
        groups=groups,
        placements=normalise(placements, len(shape)),
        shape=tuple(shape),
        rank=entry.rank,
    )


def _take_own_part(layout: Layout, tensor: Any) -> Any:
    local = tensor
    for dim, placement in enumerate(layout.placements):
        group = layout.groups[dim]
        if placement.is_shard:
            sizes = chunks(local.shape[placement.dim], group.size)
            local = cut(local, placement.dim, sizes, layout.at(dim))
        elif placement.is_partial:
            local = partition(placement.op, group.size, local)
    return local


def _refuse_partial(placements: Any) -> Refusal | None:
    ops = [each.op for each in placements if each.is_partial]
    if any(op not in {"sum", "avg", "min", "max"} for op in ops):
        return refuse_argument(f"Replicate() cannot become Partial({ops[0]})")
    return None
