"""`all_gather`: every member's tensor in a list, on every member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, tensor, tensors
from torch_scenarios.operations.base import (
    EMPTY,
    VALUE,
    Collective,
    Disagreement,
    Entry,
    Refusal,
    Slot,
    Trial,
)
from torch_scenarios.operations.checks import (
    refuse_length,
    refuse_missing,
    refuse_mixed_dtypes,
    refuse_shape,
    uneven,
)


class AllGather(Collective):
    """Collect the members' tensors, in the order of their group ranks, on every member.

    The tensors may differ in shape, as long as each list is prepared for it; Gloo refuses that.
    """

    name = "all_gather"
    params = (
        tensors(
            "tensor_list",
            "Where the tensors are stored: one for each member, of that member's shape.",
            writes=True,
            reads=False,
            aliases=("output", "output_list", "output_tensors"),
        ),
        tensor("tensor", "The contribution.", aliases=("input", "input_tensor")),
        GROUP,
        ASYNC_OP,
    )
    agree = ("tensor.dtype",)
    c10d = ("allgather_",)
    dumped = ("all_gather", "allgather")
    slots = (Slot(name="tensor_list", of="outs"), Slot(name="tensor", of="in"))
    bench = "all_gather_perf"
    payload, gathers, turns = "tensor", True, 1
    trial = Trial({"a": VALUE, "p": EMPTY}, {"tensor_list": "p", "tensor": "a"})
    example = """\
world_size: 2
tensors:
  x: "full(2, rank)"
  parts: "[zeros(2) for r in range(world_size)]"
steps:
  - all_gather: {tensor_list: parts, tensor: x}
    expect:
      parts: [[0, 0], [1, 1]]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, several dtypes, a list of the wrong length, and sizes that do not fit."""
        return (
            refuse_missing(entry, "tensor_list", "tensor")
            or refuse_mixed_dtypes(entry, "tensor_list", "tensor")
            or refuse_length(entry, "tensor_list")
            or _refuse_own_shape(entry)
        )

    def backend_kinds(self, entry: Entry) -> frozenset[str]:
        """Gloo refuses tensors of several shapes."""
        return super().backend_kinds(entry) | uneven(entry["tensor"], *entry["tensor_list"])

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """Dtypes must agree, and each item of a list fit the tensor that comes there."""
        found = super().disagreements(entries)
        sent = {entry.group_rank: tuple(entry["tensor"].shape) for entry in entries}
        if any(
            tuple(entry["tensor_list"][peer].shape) != shape
            for entry in entries
            for peer, shape in sent.items()
        ):
            values = {
                entry.group_rank: f"tensor {list(entry['tensor'].shape)}, tensor_list "
                + _shapes(entry["tensor_list"])
                for entry in entries
            }
            found.append(
                Disagreement(diagnosis="shape_mismatch", what="tensor.shape", values=values)
            )
        return found

    def common(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Every member has the stack itself, as a list."""
        return {"tensor_list": arguments["tensor"]}

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.7: block j of every receive buffer is what member j sent."""
        gathered = [entry["tensor"] for entry in entries]
        return [{"tensor_list": gathered} for _ in entries]


def _refuse_own_shape(entry: Entry) -> Refusal | None:
    own, place = entry["tensor"], entry["tensor_list"][entry.group_rank]
    if entry.group_rank < 0 or tuple(place.shape) == tuple(own.shape):
        return None
    return refuse_shape(
        f"tensor has shape {list(own.shape)}, its place in tensor_list {list(place.shape)}"
    )


def _shapes(tensors: Sequence[Any]) -> str:
    """Return the shapes of a list; of several that follow each other and are alike, one."""
    alike = groupby(str(list(each.shape)) for each in tensors)
    counted = [(sum(1 for _ in some), shape) for shape, some in alike]
    return ", ".join(f"{count} x {shape}" if count > 1 else shape for count, shape in counted)
