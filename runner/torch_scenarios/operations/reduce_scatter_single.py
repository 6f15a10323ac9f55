"""`reduce_scatter_single`: a tensor reduced, each member keeps its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, REDUCE_OP, tensor
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.operations.base import (
    OUT_IN,
    VALUE,
    Collective,
    Entry,
    Refusal,
    Trial,
)
from torch_scenarios.operations.checks import reduce_parts, refuse_op, refuse_whole


class ReduceScatterSingle(Collective):
    """Reduce a tensor over the group; each member ends with one part of it along dimension 0.

    The input may also have the members as another dimension, the first (`[world_size, n]`), which
    NCCL takes and Gloo refuses.
    """

    name = "reduce_scatter_single"
    aliases = ("reduce_scatter_tensor",)
    params = (
        tensor(
            "output",
            "Where one's own part is stored.",
            writes=True,
            reads=False,
            aliases=("output_tensor",),
        ),
        tensor("input", "The contribution: a part for each member.", aliases=("input_tensor",)),
        REDUCE_OP,
        GROUP,
        ASYNC_OP,
    )
    agree = ("op", "input.dtype", "input.shape")
    kind = "reduce_scatter"
    c10d = ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_")
    dumped = ("_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
    slots = OUT_IN
    payload, turns = "input", 1
    trial = Trial({"a": "zeros(1)", "b": VALUE}, {"output": "a", "input": "b"})
    example = """\
world_size: 2
tensors:
  x: "arange(4) + rank"
  mine: [0, 0]
steps:
  - reduce_scatter_single: {output: mine, input: x, op: sum}
    expect:
      mine: {0: [1, 3], 1: [5, 7]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, another dtype or a wrong size of the output, and a senseless op."""
        return refuse_whole(entry, "input") or refuse_op(entry, "input")

    def backend_kinds(self, entry: Entry) -> frozenset[str]:
        """Gloo refuses the members as a dimension of their own."""
        stacked = {"shape_mismatch"} if entry["input"].ndim > entry["output"].ndim else ()
        return super().backend_kinds(entry).union(stacked)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As MPI_Reduce_scatter_block (MPI 4.1, 6.10.1)."""
        result = reduce_parts(entries[0]["op"], [entry["input"] for entry in entries])
        return [{"output": _part(result, entry)} for entry in entries]

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Call it by the name that the installed torch has (2.13 renamed it)."""
        call = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

        def by_place(**given: Any) -> Any:
            return call(given.pop("output"), given.pop("input"), **given)

        return partial(by_place, **arguments)


def _part(whole: Any, entry: Entry) -> Any:
    if whole is None or isinstance(whole, Undefined):
        return whole
    rows = np.reshape(whole, (entry.size, -1)) if whole.size else np.zeros((entry.size, 0))
    return rows[entry.group_rank].astype(whole.dtype).reshape(entry["output"].shape)
