"""`all_gather_object`: every member's object in a list, on every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import GROUP, Param
from torch_scenarios.operations.base import (
    LENGTH,
    Collective,
    Disagreement,
    Entry,
    Refusal,
    TensorCall,
    measure_pickles,
)
from torch_scenarios.operations.checks import refuse_argument

SHORT = "object_list shorter than the group"


class AllGatherObject(Collective):
    """Collect one object of each member, in the order of their group ranks, on every member."""

    name = "all_gather_object"
    params = (
        Param(
            name="object_list",
            kind="objects",
            required=True,
            writes=True,
            reads=False,
            description="Where the objects are stored: a list with a place for each member.",
        ),
        Param(
            name="obj",
            kind="object",
            aliases=("object",),
            description="The contribution; None if left out.",
        ),
        GROUP,
    )
    example = """\
world_size: 2
objects:
  me: {expr: "rank * 10"}
  all: [null, null]
steps:
  - all_gather_object: {object_list: all, obj: me}
    expect:
      all: [0, 10]
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no list to store into."""
        if not isinstance(entry["object_list"], list):
            return refuse_argument("object_list is not a list on this rank", "object_list")
        return None

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """A list without a place for each member fails only after everything was exchanged."""
        short = {
            entry.group_rank: f"{len(entry['object_list'])} places"
            for entry in entries
            if len(entry["object_list"]) < entry.size
        }
        if not short:
            return []
        return [Disagreement(diagnosis="invalid_argument", what=SHORT, values=short)]

    def tensor_calls(self, entries: Sequence[Entry]) -> tuple[TensorCall, ...]:
        """The lengths from all to all, then the pickles, each as long as the longest."""
        sizes = measure_pickles(entry["obj"] for entry in entries)
        if sizes is None:
            return ()
        n = len(entries)
        return tuple(
            TensorCall(name="all_gather", size=n * own, sent=(own * (n - 1),) * n)
            for own in (LENGTH, max(sizes))
        )

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `all_gather` of one object; places beyond the group's size keep what they have."""
        gathered = [entry["obj"] for entry in entries]
        return [
            {"object_list": gathered + entry["object_list"][len(gathered) :]} for entry in entries
        ]
