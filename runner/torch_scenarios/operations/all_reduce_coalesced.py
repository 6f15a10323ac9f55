"""`all_reduce_coalesced`: several tensors reduced in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, REDUCE_OP, tensors
from torch_scenarios.operations.base import VALUE, Collective, Entry, Refusal, Slot, Trial
from torch_scenarios.operations.checks import (
    reduce_parts,
    refuse_argument,
    refuse_missing,
    refuse_mixed_elements,
    refuse_op,
)


class AllReduceCoalesced(Collective):
    """Reduce each tensor of a list over the group, in place, in one operation (deprecated)."""

    name = "all_reduce_coalesced"
    params = (
        tensors("tensors", "The contributions; hold the results afterwards.", writes=True),
        REDUCE_OP,
        GROUP,
        ASYNC_OP,
    )
    agree = ("op", "tensors.dtype", "tensors.shape")
    kind = "all_reduce"
    c10d = ("allreduce_coalesced_",)
    slots = (Slot(name="tensors", of="ins"),)
    payload, turns = "tensors", 2
    trial = Trial({"a": VALUE, "b": VALUE}, {"tensors": ["a", "b"]})
    example = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
  y: "full(3, 10 * rank)"
steps:
  - all_reduce_coalesced: {tensors: [x, y], op: sum}
    expect:
      x: [3, 3]
      y: [10, 10, 10]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, no tensors, several dtypes, and an op that complex numbers have not."""
        return (
            refuse_missing(entry, "tensors")
            or (None if entry["tensors"] else refuse_argument("tensors is empty", "tensors"))
            or refuse_mixed_elements(entry, "tensors")
            or refuse_op(entry, "tensors")
        )

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `all_reduce` of each tensor in turn."""
        op = entries[0]["op"]
        return [
            {"tensors": [reduce_parts(op, parts) for parts in _columns(entries)]} for _ in entries
        ]


def _columns(entries: Sequence[Entry]) -> list[list[NDArray[Any]]]:
    return [list(column) for column in zip(*(entry["tensors"] for entry in entries), strict=True)]
