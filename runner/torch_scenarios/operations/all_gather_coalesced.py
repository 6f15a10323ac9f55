"""`all_gather_coalesced`: several all_gathers in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, Param, tensors
from torch_scenarios.operations.base import Collective, Entry, Refusal, Slot
from torch_scenarios.operations.checks import (
    arrays_in,
    refuse_argument,
    refuse_missing,
    refuse_mixed_elements,
    refuse_shape,
)


class AllGatherCoalesced(Collective):
    """Collect a list of tensors from every member: output list j holds member j's (deprecated)."""

    name = "all_gather_coalesced"
    params = (
        Param(
            name="output_tensor_lists",
            kind="tensor_lists",
            required=True,
            writes=True,
            reads=False,
            aliases=("output", "output_lists"),
            description="One list for each member, with a tensor for each that it contributes.",
        ),
        tensors("input_tensor_list", "The contributions.", aliases=("input", "input_list")),
        GROUP,
        ASYNC_OP,
    )
    agree = ("input_tensor_list.dtype", "input_tensor_list.shape")
    kind = "all_gather"
    c10d = ("allgather_coalesced_",)
    slots = (
        Slot(name="output_tensor_lists", of="outs", wrapped=True),
        Slot(name="input_tensor_list", of="in", wrapped=True),
    )
    payload, gathers, turns = "input_tensor_list", True, 1
    example = """\
world_size: 2
tensors:
  x: "full(2, rank)"
  y: "full(1, 10 + rank)"
  x0: "zeros(2)"
  y0: "zeros(1)"
  x1: "zeros(2)"
  y1: "zeros(1)"
steps:
  - all_gather_coalesced:
      output_tensor_lists: [[x0, y0], [x1, y1]]
      input_tensor_list: [x, y]
    expect:
      x0: [0, 0]
      y0: [10]
      x1: [1, 1]
      y1: [11]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, several dtypes, and output lists that do not fit the inputs."""
        return (
            refuse_missing(entry, "input_tensor_list", "output_tensor_lists")
            or refuse_mixed_elements(entry, "input_tensor_list")
            or _refuse_lists(entry)
        )

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `all_gather` of each input in turn."""
        gathered = [list(entry["input_tensor_list"]) for entry in entries]
        return [{"output_tensor_lists": gathered} for _ in entries]


def _refuse_lists(entry: Entry) -> Refusal | None:
    inputs, outputs = entry["input_tensor_list"], entry["output_tensor_lists"]
    if not inputs:
        return refuse_argument("input_tensor_list is empty", "input_tensor_list")
    if len(outputs) != entry.size:
        message = f"output_tensor_lists needs {entry.size} lists, one for each member"
        return refuse_argument(message, "output_tensor_lists")
    pairs = [pair for row in outputs for pair in zip(row, inputs, strict=False)]
    if any(place.dtype != item.dtype for place, item in pairs):
        dtypes = {str(item.dtype) for item in (*inputs, *arrays_in(outputs))}
        message = f"the outputs are of another dtype than the inputs: {', '.join(sorted(dtypes))}"
        return Refusal(kind="dtype_mismatch", message=message)
    shapes = [tuple(item.shape) for item in inputs]
    for index, row in enumerate(outputs):
        if len(row) != len(inputs):
            message = f"output_tensor_lists[{index}] needs {len(inputs)} tensors"
            return refuse_argument(message, "output_tensor_lists")
        if [tuple(item.shape) for item in row] != shapes:
            message = f"output_tensor_lists[{index}] has not the shapes of the inputs"
            return refuse_shape(message, "output_tensor_lists")
    return None
