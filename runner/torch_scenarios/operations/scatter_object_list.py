"""`scatter_object_list`: each member gets one object of the source's list."""

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
from torch_scenarios.operations.checks import refuse_argument, refuse_length

OUT, IN = "scatter_object_output_list", "scatter_object_input_list"


class ScatterObjectList(Collective):
    """Give each member the object at its group rank in the source's list."""

    name = "scatter_object_list"
    params = (
        Param(
            name=OUT,
            kind="objects",
            required=True,
            writes=True,
            aliases=("output", "output_list", "object_output_list"),
            description="A list whose first place receives one's own object.",
        ),
        Param(
            name=IN,
            kind="objects",
            aliases=("input", "input_list", "object_input_list", "scatter_list"),
            description="What is given away: one object for each member. Ignored off the source.",
        ),
        *root("src", "Whose list it is; rank 0 if left out."),
        GROUP,
    )
    agree = ("root",)
    rooted = "src"
    default_root = 0
    example = """\
world_size: 2
objects:
  mine: [null]
  gifts: {0: [apple, pear]}
steps:
  - scatter_object_list:
      scatter_object_output_list: mine
      scatter_object_input_list: gifts
      src: 0
    expect:
      mine: {0: [apple], 1: [pear]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse a bad root, no place for the object, none or a wrong number of them to give."""
        refusal = self.refuse_root(entry)
        if refusal is not None:
            return refusal
        if not isinstance(entry[OUT], list) or not entry[OUT]:
            return refuse_argument(f"{OUT} must be a list of at least one item", OUT)
        if not self.is_root(entry):
            return None
        if entry[IN] is None:
            return refuse_argument(f"{IN} is missing on the source", IN)
        return refuse_length(entry, IN)

    def reads(self, param: Param, entry: Entry) -> bool:
        """Only the source's list is looked at."""
        return self.is_root(entry) if param.name == IN else param.name != OUT

    def needs(self, entry: Entry) -> frozenset[int]:
        """A leaf needs the source; nothing need stop the source."""
        return frozenset({self.root(entry)}) - {entry.group_rank}

    def tensor_calls(self, entries: Sequence[Entry]) -> tuple[TensorCall, ...]:
        """The greatest length, the pickles, each as long as the longest, and their lengths."""
        n, root = len(entries), self.root(entries[0])
        sizes = measure_pickles(entries[root][IN])
        if sizes is None:
            return ()
        last = (root - 1) % n
        lengths = tuple(LENGTH * (at != last) for at in range(n))
        scattered = (
            TensorCall(
                name="scatter",
                size=n * own,
                sent=tuple(own * (n - 1) * (at == root) for at in range(n)),
            )
            for own in (max(sizes), LENGTH)
        )
        return TensorCall(name="broadcast", size=LENGTH, sent=lengths), *scattered

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """As `scatter` of one object each; places after the first keep what they have."""
        given = entries[self.root(entries[0])][IN]
        return [{OUT: [given[entry.group_rank], *entry[OUT][1:]]} for entry in entries]
