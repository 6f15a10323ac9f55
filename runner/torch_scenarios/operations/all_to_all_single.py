"""`all_to_all_single`: one tensor, cut along dimension 0, a piece for every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, Param, tensor
from torch_scenarios.operations.base import (
    OUT_IN,
    VALUE,
    Collective,
    Disagreement,
    Entry,
    Refusal,
    Trial,
    Volume,
    count_array_bytes,
)
from torch_scenarios.operations.checks import (
    refuse_argument,
    refuse_missing,
    refuse_mixed_dtypes,
    refuse_shape,
)


class AllToAllSingle(Collective):
    """Cut the input along dimension 0 and send piece j to member j; join what comes, in order.

    Without split sizes all pieces are of one size, and dimension 0 must divide by the group's size
    (Gloo does not check that, and returns garbage).
    """

    name = "all_to_all_single"
    params = (
        tensor(
            "output",
            "Where the pieces are joined.",
            writes=True,
            reads=False,
            aliases=("output_tensor",),
        ),
        tensor("input", "What is cut and sent.", aliases=("input_tensor",)),
        Param(
            name="output_split_sizes",
            kind="sizes",
            description="Rows that come from each member; equal parts if left out.",
        ),
        Param(
            name="input_split_sizes",
            kind="sizes",
            description="Rows that go to each member; equal parts if left out.",
        ),
        GROUP,
        ASYNC_OP,
    )
    agree = ("input.dtype",)
    kind = "all_to_all"
    c10d = ("alltoall_base_",)
    dumped = ("all_to_all", "alltoall", "alltoall_base")
    slots = OUT_IN
    turns = 1
    trial = Trial({"a": "zeros(2)", "b": VALUE}, {"output": "a", "input": "b"})
    example = """\
world_size: 2
tensors:
  x: "arange(4) + 10 * rank"
  y: "zeros(4)"
steps:
  - all_to_all_single: {output: y, input: x}
    expect:
      y: {0: [0, 1, 10, 11], 1: [2, 3, 12, 13]}
"""

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse None, several dtypes, and split sizes that do not add up."""
        return (
            refuse_missing(entry, "output", "input")
            or refuse_mixed_dtypes(entry, "output", "input")
            or _bad_splits(entry, "output")
            or _bad_splits(entry, "input")
        )

    def disagreements(self, entries: Sequence[Entry]) -> list[Disagreement]:
        """Dtypes must agree, and what i sends to j have as many elements as j expects of i."""
        found = super().disagreements(entries)
        uneven = {
            entry.group_rank: f"{entry[name].shape[0]} rows of {name}"
            for entry in entries
            for name in ("input", "output")
            if not entry[f"{name}_split_sizes"] and entry[name].shape[0] % entry.size
        }
        if uneven:
            what = "rows that do not divide by the group's size"
            return [*found, Disagreement(diagnosis="invalid_argument", what=what, values=uneven)]
        if any(
            _counts(sender, "input")[receiver.group_rank]
            != _counts(receiver, "output")[sender.group_rank]
            for sender in entries
            for receiver in entries
        ):
            values = {entry.group_rank: _describe(entry) for entry in entries}
            found.append(
                Disagreement(diagnosis="shape_mismatch", what="split sizes", values=values)
            )
        return found

    def volume(self, entry: Entry) -> Volume:
        """The bytes of the call, and of a ring's rank."""
        size, splits = count_array_bytes(entry["input"]), entry["input_split_sizes"]
        own = size / entry.size
        if splits:
            own = size * splits[entry.group_rank] / max(sum(splits), 1)
        return Volume(size=size, sent=size - own)

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """MPI 4.1, 6.8: block j sent by i becomes block i of j."""
        pieces = [_pieces(entry) for entry in entries]
        return [
            {
                "output": np.concatenate([sent[entry.group_rank] for sent in pieces]).reshape(
                    entry["output"].shape
                )
            }
            for entry in entries
        ]


def _counts(entry: Entry, name: str) -> list[int]:
    """Return the number of elements that go to, or come from, each member."""
    rows, *rest = entry[name].shape
    sizes = entry[f"{name}_split_sizes"] or [rows // entry.size] * entry.size
    return [int(size * np.prod(rest)) for size in sizes]


def _pieces(entry: Entry) -> list[NDArray[Any]]:
    """Return what goes to each member, in order, each as one row of elements.

    input [4, 2] of a group of 2    two pieces of 4 elements: rows 0 and 1, rows 2 and 3
    """
    return list(np.split(np.ravel(entry["input"]), np.cumsum(_counts(entry, "input"))[:-1]))


def _describe(entry: Entry) -> str:
    return f"sends {_counts(entry, 'input')}, expects {_counts(entry, 'output')} elements"


def _bad_splits(entry: Entry, name: str) -> Refusal | None:
    """Refuse split sizes that do not cut dimension 0.

    As many as members, not negative, all rows in sum.

    If only one side has split sizes, the other must divide evenly, for torch takes equal parts
    there.
    """
    if not entry[name].shape:
        return refuse_shape(f"{name} has no dimension 0", name)
    sizes, rows = entry[f"{name}_split_sizes"], entry[name].shape[0]
    if not sizes:
        either = entry["input_split_sizes"] or entry["output_split_sizes"]
        if either and rows % entry.size:
            return refuse_shape(f"the {rows} rows of {name} do not divide by {entry.size}", name)
        return None
    if len(sizes) != entry.size:
        message = f"{name}_split_sizes needs {entry.size} sizes, one for each member"
        return refuse_argument(message, f"{name}_split_sizes")
    if any(size < 0 for size in sizes):
        return refuse_argument(f"{name}_split_sizes has a negative size", f"{name}_split_sizes")
    if sum(sizes) != rows:
        message = f"{name}_split_sizes add up to {sum(sizes)}, {name} has {rows} rows"
        return refuse_shape(message, f"{name}_split_sizes")
    return None
