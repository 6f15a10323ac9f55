"""`reduce`: the reduction of all contributions, on the destination only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, REDUCE_OP, root, tensor
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.operations.base import (
    VALUE,
    Collective,
    Entry,
    Refusal,
    Slot,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import reduce_parts, refuse_missing, refuse_op


class Reduce(Collective):
    """Reduce a tensor over the group; the destination ends with the result.

    What the other members hold afterwards is undefined: a backend may leave partial results.
    """

    name = "reduce"
    params = (
        tensor("tensor", "The contribution; on the destination, the result.", writes=True),
        *root("dst", "Who ends with the result."),
        REDUCE_OP,
        GROUP,
        ASYNC_OP,
    )
    agree = ("root", "op", "tensor.dtype", "tensor.shape")
    rooted = "dst"
    from_root = True
    c10d = ("reduce_",)
    dumped = ("reduce", "_reduce_oop")
    slots = (Slot(name="tensor", of="in", mark="reduced"),)
    bench = "reduce_perf"
    trial = Trial({"a": VALUE}, {"tensor": "a", "dst": 0})
    example = """\
world_size: 3
tensors:
  x: "full(2, rank + 1)"
steps:
  - reduce: {tensor: x, dst: 0, op: sum}
    expect:
      x: {0: [6, 6]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, no tensor, and an op that complex numbers have not."""
        return (
            self.refuse_root(entry) or refuse_missing(entry, "tensor") or refuse_op(entry, "tensor")
        )

    def needs(self, entry: Entry) -> frozenset[int]:
        """The destination needs every contribution; nothing need stop the others (MPI 4.1, 6.9)."""
        if self.root(entry) == entry.group_rank:
            return frozenset(range(entry.size)) - {entry.group_rank}
        return frozenset()

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        size = count_array_bytes(entry["tensor"])
        return Volume(size=size, sent=0.0 if self.is_root(entry) else size)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """The result on the destination; undefined elsewhere."""
        result = reduce_parts(entries[0]["op"], [entry["tensor"] for entry in entries])
        destination = self.root(entries[0])
        left = Undefined(cause="reduce off its destination")
        return [
            {"tensor": result if entry.group_rank == destination else left} for entry in entries
        ]
