"""`all_to_all`: every member has a tensor for every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, tensors
from torch_scenarios.operations.base import (
    EMPTY,
    LIST,
    Collective,
    Disagreement,
    Entry,
    Refusal,
    Slot,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import (
    refuse_length,
    refuse_missing,
    refuse_mixed_dtypes,
    uneven,
)

OUT, IN = "output_tensor_list", "input_tensor_list"


class AllToAll(Collective):
    """Send item j of the list to member j; store what member j sends in item j of the other.

    Items may differ in shape, as long as both ends agree; Gloo refuses that.
    """

    name = "all_to_all"
    params = (
        tensors(
            OUT,
            "Where the tensors are stored: item j is from member j.",
            writes=True,
            reads=False,
            aliases=("output", "output_list"),
        ),
        tensors(IN, "What is sent: item j goes to member j.", aliases=("input", "input_list")),
        GROUP,
        ASYNC_OP,
    )
    agree = (f"{IN}.dtype",)
    c10d = ("alltoall_",)
    slots = (
        Slot(name="output_tensor_list", of="outs", mark="out"),
        Slot(name="input_tensor_list", of="ins"),
    )
    bench = "alltoall_perf"
    turns = 1
    trial = Trial({"p": EMPTY, "q": LIST}, {"output_tensor_list": "p", "input_tensor_list": "q"})
    example = """\
world_size: 2
tensors:
  got: "[zeros(1) for r in range(world_size)]"
steps:
  - all_to_all:
      output_tensor_list: got
      input_tensor_list: "[full(1, 10 * rank + i) for i in range(world_size)]"
    expect:
      got: {0: [[0], [10]], 1: [[1], [11]]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, several dtypes, and lists of the wrong length."""
        return (
            refuse_missing(entry, OUT, IN)
            or refuse_mixed_dtypes(entry, OUT, IN)
            or refuse_length(entry, OUT)
            or refuse_length(entry, IN)
        )

    def backend_kinds(self, entry: Entry) -> frozenset[str]:
        """Gloo refuses tensors of several shapes."""
        return super().backend_kinds(entry) | uneven(*entry[IN], *entry[OUT])

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """Dtypes must agree, and what i sends to j fit what j has prepared for i."""
        found = super().disagreements(entries)
        if any(
            tuple(sender[IN][receiver.group_rank].shape)
            != tuple(receiver[OUT][sender.group_rank].shape)
            for sender in entries
            for receiver in entries
        ):
            values = {
                entry.group_rank: f"sends {self.agreed(f'{IN}.shape', entry)}; "
                f"expects {self.agreed(f'{OUT}.shape', entry)}"
                for entry in entries
            }
            found.append(
                Disagreement(diagnosis="shape_mismatch", what=f"{IN}.shape", values=values)
            )
        return found

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        pieces = entry["input_tensor_list"]
        size = count_array_bytes(pieces)
        return Volume(size=size, sent=size - count_array_bytes(pieces[entry.group_rank]))

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.8: block j sent by i becomes block i of j."""
        return [
            {OUT: [sender[IN][receiver.group_rank] for sender in entries]} for receiver in entries
        ]
