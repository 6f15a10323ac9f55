"""`broadcast_object_list`: the source's objects on every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import GROUP, Param, root
from torch_scenarios.operations.base import (
    LENGTH,
    Collective,
    Entry,
    Refusal,
    TensorCall,
    measure_pickles,
)
from torch_scenarios.operations.checks import refuse_argument


class BroadcastObjectList(Collective):
    """Copy the source's list of objects into every member's list, which has as many items."""

    name = "broadcast_object_list"
    params = (
        Param(
            name="object_list",
            kind="objects",
            required=True,
            writes=True,
            description="Sent by the source, filled on every other member.",
        ),
        *root("src", "Whose objects are sent; rank 0 if left out."),
        GROUP,
    )
    agree = ("root", "object_list.length")
    rooted = "src"
    from_root = True
    default_root = 0
    example = """\
world_size: 2
objects:
  news: {0: [hello, {answer: 42}], 1: [null, null]}
steps:
  - broadcast_object_list: {object_list: news, src: 0}
    expect:
      news: [hello, {answer: 42}]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, no list, and an empty one on the source."""
        refusal = self.refuse_root(entry)
        if refusal is not None:
            return refusal
        if not isinstance(entry["object_list"], list):
            return refuse_argument("object_list is not a list on this rank", "object_list")
        if not entry["object_list"] and self.is_root(entry):
            return refuse_argument("object_list is empty on the source", "object_list")
        return None

    def reads(self, param: Param, entry: Entry) -> bool:
        """Only the source's objects are looked at."""
        return param.name != "object_list" or self.is_root(entry)

    def writes(self, param: Param, entry: Entry) -> bool:
        """The source keeps what it has."""
        return param.writes and not self.is_root(entry)

    def needs(self, entry: Entry) -> frozenset[int]:
        """A leaf needs the source; nothing need stop the source."""
        return frozenset({self.root(entry)}) - {entry.group_rank}

    def tensor_calls(self, entries: Sequence[Entry]) -> tuple[TensorCall, ...]:
        """The lengths, then the pickles, one after the other."""
        n, root = len(entries), self.root(entries[0])
        sizes = measure_pickles(entries[root]["object_list"])
        if sizes is None:
            return ()
        last = (root - 1) % n
        return tuple(
            TensorCall(
                name="broadcast", size=size, sent=tuple(size * (at != last) for at in range(n))
            )
            for size in (LENGTH * len(sizes), sum(sizes))
        )

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `broadcast` of each object."""
        sent = entries[self.root(entries[0])]["object_list"]
        return [{"object_list": list(sent)} for _ in entries]
