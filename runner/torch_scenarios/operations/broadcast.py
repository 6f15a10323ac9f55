"""`broadcast`: the source's tensor on every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, Param, root, tensor
from torch_scenarios.operations.base import (
    SENT,
    VALUE,
    Collective,
    Entry,
    Refusal,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import refuse_missing


class Broadcast(Collective):
    """Copy the source's tensor to every member of the group."""

    name = "broadcast"
    params = (
        tensor("tensor", "Sent by the source, filled on every other member.", writes=True),
        *root("src", "Whose tensor is sent."),
        GROUP,
        ASYNC_OP,
    )
    agree = ("root", "tensor.dtype", "tensor.shape")
    rooted = "src"
    from_root = True
    c10d = ("broadcast_",)
    dumped = ("broadcast", "_broadcast_oop")
    slots = SENT
    bench = "broadcast_perf"
    trial = Trial({"a": VALUE}, {"tensor": "a", "src": 1})
    example = """\
world_size: 3
tensors:
  x: {1: [1, 2, 3], else: [0, 0, 0]}
steps:
  - broadcast: {tensor: x, src: 1}
    expect:
      x: [1, 2, 3]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root and no tensor."""
        return self.refuse_root(entry) or refuse_missing(entry, "tensor")

    def reads(self, param: Param, entry: Entry) -> bool:
        """Only the source's tensor is looked at."""
        return param.name != "tensor" or self.is_root(entry)

    def writes(self, param: Param, entry: Entry) -> bool:
        """The source keeps what it has."""
        return param.writes and not self.is_root(entry)

    def needs(self, entry: Entry) -> frozenset[int]:
        """A leaf needs the source; nothing need stop the source (MPI 4.1, 6.4)."""
        return frozenset({self.root(entry)}) - {entry.group_rank}

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        size = count_array_bytes(entry["tensor"])
        last = (self.root(entry) - 1) % entry.size == entry.group_rank
        return Volume(size=size, sent=0.0 if last else size)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.4: every member holds a copy of the root's buffer."""
        sent = entries[self.root(entries[0])]["tensor"]
        return [{"tensor": sent} for _ in entries]
