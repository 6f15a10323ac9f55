"""`gather`: every member's tensor in a list, on the destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, Param, root, tensor, tensors
from torch_scenarios.operations.base import (
    EMPTY,
    VALUE,
    Collective,
    Entry,
    Refusal,
    Slot,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import refuse_list_at_root


class Gather(Collective):
    """Collect the members' tensors, in the order of their group ranks, on the destination."""

    name = "gather"
    params = (
        tensor("tensor", "The contribution."),
        tensors(
            "gather_list",
            "Where the tensors are stored: one for each member. On the destination only.",
            writes=True,
            reads=False,
            required=False,
        ),
        *root("dst", "Who collects; rank 0 if left out."),
        GROUP,
        ASYNC_OP,
    )
    agree = ("root", "tensor.dtype", "tensor.shape")
    rooted = "dst"
    default_root = 0
    c10d = ("gather_",)
    dumped = ("gather",)
    slots = (Slot(name="tensor", of="in"), Slot(name="gather_list", of="outs", at_root=True))
    bench = "gather_perf"
    turns = 1
    trial = Trial({"a": VALUE, "p": {0: EMPTY}}, {"tensor": "a", "gather_list": "p", "dst": 0})
    example = """\
world_size: 2
tensors:
  x: "full(2, rank)"
  parts: {0: "[zeros(2) for r in range(world_size)]"}
steps:
  - gather: {tensor: x, gather_list: parts, dst: 0}
    expect:
      parts: {0: [[0, 0], [1, 1]]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, a list off the destination, none or a misfitting one on it."""
        return refuse_list_at_root(self, entry, "gather_list", "destination")

    def writes(self, param: Param, entry: Entry) -> bool:
        """Only the destination stores anything."""
        return param.writes and self.is_root(entry)

    def needs(self, entry: Entry) -> frozenset[int]:
        """The destination needs every contribution; nothing need stop the others (MPI 4.1, 6.5)."""
        return frozenset(range(entry.size)) if self.is_root(entry) else frozenset()

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        own = count_array_bytes(entry["tensor"])
        return Volume(size=own * entry.size, sent=0.0 if self.is_root(entry) else own)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.5: block j of the root's buffer is what member j sent."""
        gathered = [entry["tensor"] for entry in entries]
        destination = self.root(entries[0])
        return [
            {"gather_list": gathered} if entry.group_rank == destination else {}
            for entry in entries
        ]
