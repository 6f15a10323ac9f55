"""Identities between operations, for any size of world and any small integers (MPI 4.1, 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective, Entry, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

OPS = st.sampled_from(["sum", "avg", "product", "min", "max", "band", "bor", "bxor"])


@st.composite
def blocks(draw: st.DrawFn) -> NDArray[Any]:
    """Return (size, size, n) integers: what each member has for each."""
    size = draw(st.integers(1, 5))
    count = draw(st.integers(0, 3))
    numbers = st.integers(-9, 9)
    length = size * size * count
    drawn = draw(st.lists(numbers, min_size=length, max_size=length))
    return np.array(drawn, np.int64).reshape(size, size, count)


def run(name: str, arguments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    operation = BY_NAME[name]
    assert isinstance(operation, Collective)
    group = Group(key="g", name="g", ranks=tuple(range(len(arguments))), timeout_s=1.0)
    defaults = {param.name: param.default for param in operation.params}
    entries = [
        Entry(rank=rank, group=group, arguments={**defaults, **given})
        for rank, given in enumerate(arguments)
    ]
    assert [operation.refuse(entry) for entry in entries] == [None] * len(entries)
    assert operation.disagreements(entries) == []
    return operation.reference(entries)


def same(one: Any, other: Any) -> None:
    assert np.asarray(one).tolist() == np.asarray(other).tolist()


def transposed(data: NDArray[Any]) -> list[NDArray[Any]]:
    results = run(
        "all_to_all",
        [
            {"input_tensor_list": list(mine), "output_tensor_list": list(np.zeros_like(mine))}
            for mine in data
        ],
    )
    return [np.asarray(result["output_tensor_list"]) for result in results]


@given(blocks())
def test_all_to_all_twice_changes_nothing(data: NDArray[Any]) -> None:
    same(transposed(np.asarray(transposed(data))), data)


@given(blocks())
def test_all_to_all_single_is_all_to_all_of_the_pieces(data: NDArray[Any]) -> None:
    size, _, count = data.shape
    results = run(
        "all_to_all_single",
        [{"input": mine.ravel(), "output": np.zeros(size * count, np.int64)} for mine in data],
    )
    same([result["output"].reshape(size, count) for result in results], transposed(data))


@given(blocks(), OPS)
def test_reduce_scatter_is_a_part_of_all_reduce(data: NDArray[Any], op: str) -> None:
    whole = run("all_reduce", [{"tensor": mine, "op": op} for mine in data])
    parts = run(
        "reduce_scatter",
        [{"input_list": list(mine), "output": mine[0], "op": op} for mine in data],
    )
    flat = run(
        "reduce_scatter_single",
        [{"input": mine.ravel(), "output": mine[0], "op": op} for mine in data],
    )
    for rank, part in enumerate(parts):
        same(part["output"], whole[rank]["tensor"][rank])
        same(flat[rank]["output"], part["output"])


@given(blocks(), OPS)
def test_reduce_and_then_broadcast_is_all_reduce(data: NDArray[Any], op: str) -> None:
    size = len(data)
    for root in range(size):
        reduced = run("reduce", [{"tensor": mine, "op": op, "dst": root} for mine in data])
        sent = [
            {"tensor": reduced[root]["tensor"] if rank == root else mine, "src": root}
            for rank, mine in enumerate(data)
        ]
        ended = run("broadcast", sent)
        same(
            [result["tensor"] for result in ended],
            [
                result["tensor"]
                for result in run("all_reduce", [{"tensor": mine, "op": op} for mine in data])
            ],
        )


@given(blocks())
def test_gather_and_then_scatter_changes_nothing(data: NDArray[Any]) -> None:
    for root in range(len(data)):
        gathered = run(
            "gather",
            [
                {
                    "tensor": mine,
                    "gather_list": list(np.zeros_like(data)) if rank == root else None,
                    "dst": root,
                }
                for rank, mine in enumerate(data)
            ],
        )[root]["gather_list"]
        ended = run(
            "scatter",
            [
                {
                    "tensor": np.zeros_like(mine),
                    "scatter_list": gathered if rank == root else None,
                    "src": root,
                }
                for rank, mine in enumerate(data)
            ],
        )
        same([result["tensor"] for result in ended], data)


@given(blocks())
def test_the_three_all_gathers_give_the_same(data: NDArray[Any]) -> None:
    lists = run(
        "all_gather",
        [{"tensor": mine, "tensor_list": list(np.zeros_like(data))} for mine in data],
    )
    stacked = run(
        "all_gather_single", [{"input": mine, "output": np.zeros_like(data)} for mine in data]
    )
    coalesced = run(
        "all_gather_coalesced",
        [
            {
                "input_tensor_list": [mine],
                "output_tensor_lists": [[blank] for blank in np.zeros_like(data)],
            }
            for mine in data
        ],
    )
    for one, other, third in zip(lists, stacked, coalesced, strict=True):
        same(one["tensor_list"], data)
        same(other["output"], data)
        same([row[0] for row in third["output_tensor_lists"]], data)
