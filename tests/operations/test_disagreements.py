"""What members must agree on: each disagreement beside the arguments that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from torch_scenarios.operations.base import Entry

    Enter = Callable[[str, Mapping[int, Mapping[str, Any]]], list[Entry]]


def f32(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float32)


def i32(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.int32)


def pieces(inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    return {
        "input": f32(sum(inputs)),
        "output": f32(sum(outputs)),
        "input_split_sizes": inputs,
        "output_split_sizes": outputs,
    }


def lists(inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    return {
        "input_tensor_list": [f32(count) for count in inputs],
        "output_tensor_list": [f32(count) for count in outputs],
    }


#: (operation, rank 0's and rank 1's arguments in a world of which rank 2 is missing, diagnosis)
WRONG: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("all_reduce", {"tensor": f32(2)}, {"tensor": f32(3)}, "shape_mismatch"),
    ("all_reduce", {"tensor": f32(2, 3)}, {"tensor": f32(3, 2)}, "shape_mismatch"),
    ("all_reduce", {"tensor": f32(2)}, {"tensor": i32(2)}, "dtype_mismatch"),
    ("all_reduce", {"tensor": f32(2)}, {"tensor": f32(2), "op": "max"}, "op_mismatch"),
    ("reduce", {"tensor": f32(2), "dst": 0}, {"tensor": f32(2), "dst": 1}, "root_mismatch"),
    ("broadcast", {"tensor": f32(2), "src": 0}, {"tensor": f32(2), "src": 1}, "root_mismatch"),
    ("broadcast", {"tensor": f32(2), "src": 0}, {"tensor": f32(1), "src": 0}, "shape_mismatch"),
    (
        "all_reduce_coalesced",
        {"tensors": [f32(2), f32(1)]},
        {"tensors": [f32(2)]},
        "shape_mismatch",
    ),
    (
        "all_gather",
        {"tensor_list": [f32(2)] * 3, "tensor": f32(2)},
        {"tensor_list": [f32(2), f32(1), f32(2)], "tensor": f32(1)},
        "shape_mismatch",
    ),
    (
        "all_gather_single",
        {"output": f32(6), "input": f32(2)},
        {"output": f32(3), "input": f32(1)},
        "shape_mismatch",
    ),
    (
        "gather",
        {"tensor": f32(2), "gather_list": [f32(2)] * 3},
        {"tensor": i32(2)},
        "dtype_mismatch",
    ),
    (
        "scatter",
        {"tensor": f32(2), "scatter_list": [f32(2)] * 3},
        {"tensor": f32(3)},
        "shape_mismatch",
    ),
    (
        "reduce_scatter",
        {"output": f32(1), "input_list": [f32(1)] * 3},
        {"output": f32(2), "input_list": [f32(2)] * 3},
        "shape_mismatch",
    ),
    (
        "reduce_scatter_single",
        {"output": f32(1), "input": f32(3), "op": "min"},
        {"output": f32(1), "input": f32(3), "op": "max"},
        "op_mismatch",
    ),
    ("all_to_all", lists([1, 2, 1], [1, 1, 1]), lists([1, 1, 1], [1, 1, 1]), "shape_mismatch"),
    (
        "all_to_all_single",
        pieces([1, 2, 0], [1, 1, 0]),
        pieces([1, 1, 0], [1, 1, 0]),
        "shape_mismatch",
    ),
    (
        "all_to_all_single",
        {"output": f32(4), "input": f32(4)},
        {"output": f32(4), "input": f32(4)},
        "invalid_argument",
    ),
    ("broadcast_object_list", {"object_list": [1]}, {"object_list": [1, 2]}, "shape_mismatch"),
    (
        "broadcast_object_list",
        {"object_list": [1]},
        {"object_list": [1], "src": 1},
        "root_mismatch",
    ),
    ("all_gather_object", {"object_list": [1]}, {"object_list": [1] * 3}, "invalid_argument"),
    ("gather_object", {"object_gather_list": [1]}, {}, "invalid_argument"),
]

RIGHT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("all_reduce", {"tensor": f32(2)}, {"tensor": f32(2)}),
    ("broadcast", {"tensor": f32(2), "src": 1}, {"tensor": f32(2), "group_src": 1}),
    (
        "all_gather",
        {"tensor_list": [f32(2), f32(1), f32(9)], "tensor": f32(2)},
        {"tensor_list": [f32(2), f32(1), f32(5)], "tensor": f32(1)},
    ),
    ("gather", {"tensor": f32(2), "gather_list": [f32(2)] * 3}, {"tensor": f32(2)}),
    ("scatter", {"tensor": f32(2)}, {"tensor": f32(2)}),
    (
        "reduce_scatter",
        {"output": f32(1), "input_list": [f32(1), f32(2), f32(0)]},
        {"output": f32(2), "input_list": [f32(1), f32(2), f32(0)]},
    ),
    ("all_to_all", lists([1, 2, 7], [1, 3, 8]), lists([3, 1, 9], [2, 1, 5])),
    ("all_to_all_single", pieces([1, 2, 7], [1, 3, 8]), pieces([3, 1, 9], [2, 1, 5])),
    (
        "all_to_all_single",
        {"output": f32(3, 2), "input": f32(6)},
        {"output": f32(6), "input": f32(3, 2)},
    ),
    ("broadcast_object_list", {"object_list": [1]}, {"object_list": [None]}),
    ("all_gather_object", {"object_list": [1] * 3}, {"object_list": [1] * 4}),
    ("gather_object", {"object_gather_list": [1] * 3}, {}),
    (
        "scatter_object_list",
        {"scatter_object_output_list": [1]},
        {"scatter_object_output_list": [2]},
    ),
    ("barrier", {"timeout": 1.0}, {}),
]


def ids(cases: list[Any]) -> list[str]:
    return [f"{case[0]}-{index}" for index, case in enumerate(cases)]


def collective(name: str) -> Collective:
    operation = BY_NAME[name]
    assert isinstance(operation, Collective)
    return operation


@pytest.mark.parametrize("case", WRONG, ids=ids(WRONG))
def test_members_that_disagree_are_found(
    case: tuple[str, dict[str, Any], dict[str, Any], str], enter: Enter
) -> None:
    name, zero, one, diagnosis = case
    entries = enter(name, {0: zero, 1: one})
    assert [collective(name).refuse(entry) for entry in entries] == [None, None]
    found = collective(name).disagreements(entries)
    assert [disagreement.diagnosis for disagreement in found] == [diagnosis]
    assert set(found[0].values) <= {0, 1}
    assert found[0].what


@pytest.mark.parametrize("case", RIGHT, ids=ids(RIGHT))
def test_members_that_fit_agree(
    case: tuple[str, dict[str, Any], dict[str, Any]], enter: Enter
) -> None:
    name, zero, one = case
    assert collective(name).disagreements(enter(name, {0: zero, 1: one})) == []


@pytest.mark.parametrize(
    ("name", "argument", "root", "destination", "others"),
    [
        ("broadcast", "tensor", "src", set(), {1}),
        ("scatter", "tensor", "src", set(), {1}),
        ("reduce", "tensor", "dst", {0, 2}, set()),
        ("gather", "tensor", "dst", {0, 2}, set()),
        ("broadcast_object_list", "object_list", "src", set(), {1}),
        ("scatter_object_list", "scatter_object_output_list", "src", set(), {1}),
        ("gather_object", "obj", "dst", {0, 2}, set()),
    ],
)
def test_a_rooted_operation_needs_what_its_result_depends_on(
    enter: Enter, name: str, argument: str, root: str, destination: set[int], others: set[int]
) -> None:
    zero, one = enter(name, {0: {argument: [f32(1)], root: 1}, 1: {argument: [f32(1)], root: 1}})
    assert collective(name).needs(one) - {1} == destination
    assert collective(name).needs(zero) - {0} == others


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "all_to_all", "barrier"])
def test_a_symmetric_operation_needs_everyone(enter: Enter, name: str) -> None:
    (entry,) = enter(name, {0: {}})
    assert collective(name).needs(entry) == {0, 1, 2}
