"""`all_gather_single`: every member's tensor in one, on every member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, tensor
from torch_scenarios.operations.base import (
    OUT_IN,
    VALUE,
    Collective,
    Entry,
    Refusal,
    Trial,
)
from torch_scenarios.operations.checks import refuse_whole


class AllGatherSingle(Collective):
    """Collect the members' tensors in one, concatenated along dimension 0, on every member.

    The output may also have the members as a new first dimension (`[world_size, n]`), which NCCL
    takes and Gloo refuses.
    """

    name = "all_gather_single"
    aliases = ("all_gather_into_tensor",)
    params = (
        tensor(
            "output",
            "Where the tensors are stored.",
            writes=True,
            reads=False,
            aliases=("output_tensor",),
        ),
        tensor("input", "The contribution.", aliases=("input_tensor", "tensor")),
        GROUP,
        ASYNC_OP,
    )
    agree = ("input.dtype", "input.shape")
    kind = "all_gather"
    c10d = ("_allgather_base_", "allgather_into_tensor_coalesced_")
    dumped = ("_all_gather_base", "all_gather_into_tensor_coalesced")
    slots = OUT_IN
    payload, gathers, turns = "input", True, 1
    trial = Trial({"a": "zeros(4)", "b": VALUE}, {"output": "a", "input": "b"})
    example = """\
world_size: 3
tensors:
  x: "full(2, rank)"
  all: "zeros(6)"
steps:
  - all_gather_single: {output: all, input: x}
    expect:
      all: [0, 0, 1, 1, 2, 2]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, another dtype of the output, and an output of the wrong size."""
        return refuse_whole(entry, "output")

    def backend_kinds(self, entry: Entry) -> frozenset[str]:
        """Gloo refuses the members as a dimension of their own, and scalars."""
        stacked = {"shape_mismatch"} if entry["output"].ndim > entry["input"].ndim else ()
        return super().backend_kinds(entry).union(stacked)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As MPI_Allgather into one buffer (MPI 4.1, 6.7), in the shape of each output."""
        flat = np.concatenate([np.ravel(entry["input"]) for entry in entries])
        return [{"output": flat.reshape(entry["output"].shape)} for entry in entries]

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call it by the name that the installed torch has (2.13 renamed it)."""
        call = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

        def by_place(**given: Any) -> Any:
            return call(given.pop("output"), given.pop("input"), **given)

        return partial(by_place, **arguments)
