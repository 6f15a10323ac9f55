"""`all_reduce`: every member ends with the reduction of all contributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, REDUCE_OP, tensor
from torch_scenarios.operations.base import SENT, VALUE, Collective, Entry, Refusal, Trial
from torch_scenarios.operations.checks import reduce_parts, refuse_missing, refuse_op


class AllReduce(Collective):
    """Reduce a tensor over the group; every member ends with the result, in place."""

    name = "all_reduce"
    params = (
        tensor("tensor", "The contribution; holds the result afterwards.", writes=True),
        REDUCE_OP,
        GROUP,
        ASYNC_OP,
    )
    agree = ("op", "tensor.dtype", "tensor.shape")
    c10d = ("allreduce_",)
    dumped = ("all_reduce", "allreduce", "allreduce_coalesced")
    slots = SENT
    bench = "all_reduce_perf"
    payload, turns = "tensor", 2
    trial = Trial({"a": VALUE}, {"tensor": "a"})
    example = """\
world_size: 2
tensors:
  x: "full(3, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: [3, 3, 3]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no tensor, and an op that complex numbers have not."""
        return refuse_missing(entry, "tensor") or refuse_op(entry, "tensor")

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.9.6: the same result on every member."""
        result = reduce_parts(entries[0]["op"], [entry["tensor"] for entry in entries])
        return [{"tensor": result} for _ in entries]

    def common(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reduction of a stack."""
        return {"tensor": reduce_parts(arguments["op"], arguments["tensor"])}
