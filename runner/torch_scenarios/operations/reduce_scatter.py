"""`reduce_scatter`: lists of tensors reduced place by place, each place to one member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, REDUCE_OP, tensor, tensors
from torch_scenarios.operations.base import LIST, Collective, Entry, Refusal, Slot, Trial
from torch_scenarios.operations.checks import (
    reduce_parts,
    refuse_length,
    refuse_missing,
    refuse_mixed_dtypes,
    refuse_op,
    refuse_shape,
)


class ReduceScatter(Collective):
    """Reduce the members' lists place by place; each member ends with the place of its rank.

    The tensors of one list may differ in shape; the lists of all members must be alike.
    """

    name = "reduce_scatter"
    params = (
        tensor(
            "output",
            "Where one's own part is stored.",
            writes=True,
            reads=False,
            aliases=("tensor", "output_tensor"),
        ),
        tensors(
            "input_list",
            "The contributions: one tensor for each member.",
            aliases=("input", "tensor_list", "input_tensor_list"),
        ),
        REDUCE_OP,
        GROUP,
        ASYNC_OP,
    )
    agree = ("op", "input_list.dtype", "input_list.shape")
    c10d = ("reduce_scatter_",)
    dumped = ("reduce_scatter",)
    slots = (Slot(name="output", of="out"), Slot(name="input_list", of="ins"))
    bench = "reduce_scatter_perf"
    payload, turns = "input_list", 1
    trial = Trial({"a": "zeros(2)", "p": LIST}, {"output": "a", "input_list": "p"})
    example = """\
world_size: 2
tensors:
  mine: [0, 0]
steps:
  - reduce_scatter:
      output: mine
      input_list: "[full(2, 10 * rank + i) for i in range(world_size)]"
      op: sum
    expect:
      mine: {0: [10, 10], 1: [12, 12]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, several dtypes, a wrong length, a misfitting output, a senseless op."""
        return (
            refuse_missing(entry, "output", "input_list")
            or refuse_mixed_dtypes(entry, "output", "input_list")
            or refuse_length(entry, "input_list")
            or _refuse_output(entry)
            or refuse_op(entry, "input_list")
        )

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.10: member j receives block j of the reduction."""
        return [{"output": reduce_parts(entry["op"], _parts(entries, entry))} for entry in entries]


def _parts(entries: Sequence[Entry], of: Entry) -> list[NDArray[Any]]:
    return [entry["input_list"][of.group_rank] for entry in entries]


def _refuse_output(entry: Entry) -> Refusal | None:
    wanted, given = entry["input_list"][entry.group_rank].shape, entry["output"].shape
    if entry.group_rank < 0 or tuple(wanted) == tuple(given):
        return None
    return refuse_shape(f"output has shape {list(given)}, its place in input_list {list(wanted)}")
