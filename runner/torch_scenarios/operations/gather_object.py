"""`gather_object`: every member's object in a list, on the destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import GROUP, Param, root
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

LIST = "object_gather_list"


class GatherObject(Collective):
    """Collect one object of each member, in the order of their group ranks, on the destination."""

    name = "gather_object"
    params = (
        Param(
            name="obj",
            kind="object",
            aliases=("object",),
            description="The contribution; None if left out.",
        ),
        Param(
            name=LIST,
            kind="objects",
            writes=True,
            reads=False,
            aliases=("gather_list", "object_list"),
            description="Where the objects are stored, a place for each. On the destination only.",
        ),
        *root("dst", "Who collects; rank 0 if left out."),
        GROUP,
    )
    agree = ("root",)
    rooted = "dst"
    default_root = 0
    example = """\
world_size: 2
objects:
  me: {expr: "rank * 10"}
  all: {0: [null, null]}
steps:
  - gather_object: {obj: me, object_gather_list: all, dst: 0}
    expect:
      all: {0: [0, 10]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, a list off the destination, and none on it."""
        refusal = self.refuse_root(entry)
        if refusal is not None:
            return refusal
        if self.is_root(entry):
            return (
                None
                if entry[LIST]
                else refuse_argument(f"{LIST} is missing on the destination", LIST)
            )
        return (
            refuse_argument(f"{LIST} is given off the destination", LIST) if entry[LIST] else None
        )

    def writes(self, param: Param, entry: Entry) -> bool:
        """Only the destination stores anything."""
        return param.writes and self.is_root(entry)

    def needs(self, entry: Entry) -> frozenset[int]:
        """The destination needs every contribution; nothing need stop the others."""
        return frozenset(range(entry.size)) if self.is_root(entry) else frozenset()

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """A list without a place for each member fails only after everything was exchanged."""
        found = super().disagreements(entries)
        short = {
            entry.group_rank: f"{len(entry[LIST])} places"
            for entry in entries
            if self.is_root(entry) and len(entry[LIST]) < entry.size
        }
        if short:
            what = f"{LIST} shorter than the group"
            found.append(Disagreement(diagnosis="invalid_argument", what=what, values=short))
        return found

    def tensor_calls(self, entries: Sequence[Entry]) -> tuple[TensorCall, ...]:
        """The lengths from all to all, then the pickles, each as long as the longest."""
        sizes = measure_pickles(entry["obj"] for entry in entries)
        if sizes is None:
            return ()
        n, own = len(entries), max(sizes)
        sent = tuple(0 if self.is_root(entry) else own for entry in entries)
        lengths = TensorCall(name="all_gather", size=n * LENGTH, sent=(LENGTH * (n - 1),) * n)
        return lengths, TensorCall(name="gather", size=n * own, sent=sent)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `gather` of one object; places beyond the group's size keep what they have."""
        gathered = [entry["obj"] for entry in entries]
        return [
            {LIST: gathered + entry[LIST][len(gathered) :]} if self.is_root(entry) else {}
            for entry in entries
        ]
