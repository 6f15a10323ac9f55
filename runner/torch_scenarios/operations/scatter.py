"""`scatter`: each member gets one tensor of the source's list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, root, tensor, tensors
from torch_scenarios.operations.base import (
    Collective,
    Entry,
    Refusal,
    Slot,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import refuse_list_at_root


class Scatter(Collective):
    """Give each member the tensor at its group rank in the source's list."""

    name = "scatter"
    params = (
        tensor("tensor", "Where one's own part is stored.", writes=True, reads=False),
        tensors(
            "scatter_list",
            "What is given away: one tensor for each member. On the source only.",
            required=False,
        ),
        *root("src", "Whose list it is; rank 0 if left out."),
        GROUP,
        ASYNC_OP,
    )
    agree = ("root", "tensor.dtype", "tensor.shape")
    rooted = "src"
    from_root = True
    default_root = 0
    c10d = ("scatter_",)
    dumped = ("scatter",)
    slots = (Slot(name="tensor", of="out"), Slot(name="scatter_list", of="ins", at_root=True))
    bench = "scatter_perf"
    turns = 1
    trial = Trial(
        {"a": "zeros(2)", "p": {0: "[ones(2), zeros(2)]"}},
        {"tensor": "a", "scatter_list": "p", "src": 0},
    )
    example = """\
world_size: 2
tensors:
  mine: [0, 0]
  parts: {0: "[full(2, i + 1) for i in range(world_size)]"}
steps:
  - scatter: {tensor: mine, scatter_list: parts, src: 0}
    expect:
      mine: {0: [1, 1], 1: [2, 2]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, a list off the source, none or a misfitting one on it."""
        return refuse_list_at_root(self, entry, "scatter_list", "source")

    def needs(self, entry: Entry) -> frozenset[int]:
        """A leaf needs the source; nothing need stop the source (MPI 4.1, 6.6)."""
        return frozenset({self.root(entry)}) - {entry.group_rank}

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        size = count_array_bytes(entry["tensor"]) * entry.size
        sent = size * (entry.size - 1) / entry.size
        return Volume(size=size, sent=sent if self.is_root(entry) else 0.0)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.6: member j receives block j of the root's buffer."""
        parts = entries[self.root(entries[0])]["scatter_list"]
        return [{"tensor": parts[entry.group_rank]} for entry in entries]
