"""The reference against real Gloo: every operation, dtype and reduce op that Gloo carries out.

The numbers are small integers, exact in every dtype, so that values are compared without tolerance.
Where Gloo refuses what torch documents is asserted too, so that a new torch is noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.operations import BY_NAME, OPERATIONS
from torch_scenarios.operations.base import Collective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tests.operations.conftest import Gloo
    from torch_scenarios.operations.base import Entry

    Enter = Callable[[str, Mapping[int, Mapping[str, Any]]], list[Entry]]
    Arguments = dict[int, dict[str, Any]]

pytestmark = pytest.mark.torch

WORLD = range(3)
FLOATS: tuple[Any, ...] = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
INTEGERS: tuple[Any, ...] = (np.int8, np.uint8, np.int32, np.int64)
COMPLEX: tuple[Any, ...] = (np.complex64, np.complex128)
OPS: dict[str, tuple[Any, ...]] = {
    "sum": (*FLOATS, *INTEGERS, *COMPLEX),
    "avg": (*FLOATS, *COMPLEX),
    "product": (*FLOATS, *INTEGERS, np.bool_),
    "min": (*FLOATS, *INTEGERS, np.bool_),
    "max": (*FLOATS, *INTEGERS, np.bool_),
    "band": (*INTEGERS, np.bool_),
    "bor": (*INTEGERS, np.bool_),
    "bxor": (*INTEGERS, np.bool_),
}
MOVED = (*FLOATS, *INTEGERS, np.bool_, *COMPLEX)


def name_of(value: object) -> str:
    return value if isinstance(value, str) else np.dtype(value).name  # type: ignore[call-overload]


def values(rank: int, count: int, dtype: Any) -> NDArray[Any]:
    """Return `count` small numbers of a rank's own; their sum over three ranks divides by three."""
    numbers = (np.arange(count) * (rank + 1)) % 3 + np.array([1, 2, 6])[rank]
    if np.dtype(dtype) == np.bool_:
        return np.asarray(numbers % 2 == 0)
    made = numbers.astype(dtype)
    return np.asarray(made * (1 - 1j) if np.dtype(dtype).kind == "c" else made)


def agree(gloo: Gloo, enter: Enter, name: str, arguments: Arguments) -> None:
    """Hold what Gloo left in the written arguments against the reference."""
    operation = BY_NAME[name]
    assert isinstance(operation, Collective)
    entries = enter(name, arguments)
    assert [operation.refuse(entry) for entry in entries] == [None] * len(entries)
    assert operation.disagreements(entries) == []
    results = operation.reference(entries)
    answers = gloo.call(name, arguments)
    for entry, result in zip(entries, results, strict=True):
        how, *rest = answers[entry.rank]
        assert how == "done", rest
        for param in operation.params:
            if operation.writes(param, entry) and not isinstance(result[param.name], Undefined):
                same(rest[0][param.name], result[param.name])


def same(observed: Any, expected: Any) -> None:
    """Compare dtypes, shapes and every element."""
    if isinstance(expected, np.ndarray):
        assert observed.dtype == expected.dtype
        assert observed.shape == expected.shape
        assert observed.tolist() == expected.tolist()
    elif isinstance(expected, list):
        assert len(observed) == len(expected)
        for one, other in zip(observed, expected, strict=True):
            same(one, other)
    else:
        assert observed == expected


@pytest.mark.parametrize(
    ("op", "dtype"),
    sampled([(op, dtype) for op, dtypes in OPS.items() for dtype in dtypes], 8),
    ids=name_of,
)
def test_reductions_agree(gloo: Gloo, enter: Enter, op: str, dtype: Any) -> None:
    def part(rank: int) -> NDArray[Any]:
        return values(rank, 3, dtype)

    cases: dict[str, Callable[[int], dict[str, Any]]] = {
        "all_reduce": lambda rank: {"tensor": part(rank)},
        "reduce": lambda rank: {"tensor": part(rank), "dst": 1},
        "all_reduce_coalesced": lambda rank: {"tensors": [part(rank), values(rank, 2, dtype)]},
        "reduce_scatter": lambda rank: {
            "output": values(rank, rank, dtype),
            "input_list": [values(rank, count, dtype) for count in WORLD],
        },
        "reduce_scatter_single": lambda rank: {
            "output": values(0, 2, dtype),
            "input": values(rank, 6, dtype),
        },
    }
    untried = {each.name for each in OPERATIONS if each.reduces} - cases.keys()
    assert untried == set(), "each operation with a reduce op is tried here with all of them"
    for name, make in cases.items():
        agree(gloo, enter, name, {rank: {**make(rank), "op": op} for rank in WORLD})


@pytest.mark.parametrize("dtype", MOVED, ids=name_of)
def test_movements_agree(gloo: Gloo, enter: Enter, dtype: Any) -> None:
    def blank(count: int) -> NDArray[Any]:
        return np.zeros(count, dtype)

    def part(rank: int) -> NDArray[Any]:
        return values(rank, 2, dtype)

    cases: dict[str, Callable[[int], dict[str, Any]]] = {
        "broadcast": lambda rank: {"tensor": part(rank), "src": 2},
        "all_gather": lambda rank: {
            "tensor_list": [blank(2) for _ in WORLD],
            "tensor": part(rank),
        },
        "all_gather_single": lambda rank: {"output": blank(6), "input": part(rank)},
        "all_gather_coalesced": lambda rank: {
            "output_tensor_lists": [[blank(2), blank(1)] for _ in WORLD],
            "input_tensor_list": [part(rank), values(rank, 1, dtype)],
        },
        "scatter": lambda rank: {
            "tensor": blank(2),
            "scatter_list": [part(to) for to in WORLD] if rank == 1 else None,
            "src": 1,
        },
        "all_to_all": lambda rank: {
            "output_tensor_list": [blank(2) for _ in WORLD],
            "input_tensor_list": [part((rank + to) % 3) for to in WORLD],
        },
        "all_to_all_single": lambda rank: {"output": blank(6), "input": values(rank, 6, dtype)},
    }
    if np.dtype(dtype).kind != "c":
        cases["gather"] = lambda rank: {
            "tensor": part(rank),
            "gather_list": [blank(2) for _ in WORLD] if rank == 0 else None,
        }
    moving = {
        each.name
        for each in OPERATIONS
        if isinstance(each, Collective)
        and not each.reduces
        and any(param.kind.startswith("tensor") for param in each.params)
    }
    untried = moving - {*cases, "gather"}
    assert untried == set(), "each collective of tensors is tried here, or with the reduce ops"
    for name, make in cases.items():
        agree(gloo, enter, name, {rank: make(rank) for rank in WORLD})


def test_uneven_splits_agree(gloo: Gloo, enter: Enter) -> None:
    given = {
        rank: {
            "output": np.zeros((3 * rank, 2), np.float32),
            "input": values(rank, 6, np.float32).reshape(3, 2),
            "input_split_sizes": [0, 1, 2],
            "output_split_sizes": [rank] * 3,
        }
        for rank in WORLD
    }
    agree(gloo, enter, "all_to_all_single", given)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (2, 1, 3)], ids=str)
def test_shapes_agree(gloo: Gloo, enter: Enter, shape: tuple[int, ...]) -> None:
    def part(rank: int) -> NDArray[Any]:
        return np.full(shape, rank + 1, np.float32)

    agree(gloo, enter, "all_reduce", {rank: {"tensor": part(rank)} for rank in WORLD})
    agree(gloo, enter, "broadcast", {rank: {"tensor": part(rank), "src": 0} for rank in WORLD})
    agree(
        gloo,
        enter,
        "all_gather",
        {rank: {"tensor_list": [part(9) for _ in WORLD], "tensor": part(rank)} for rank in WORLD},
    )


def test_roots_agree_in_a_group_whose_ranks_are_not_sorted(gloo: Gloo, enter: Enter) -> None:
    for root in ({"src": 0}, {"group_src": 1}):
        given = {
            rank: {"tensor": values(rank, 2, np.float32), "group": "pair", **root}
            for rank in (2, 0)
        }
        agree(gloo, enter, "broadcast", given)
    given = {
        rank: {
            "tensor_list": [np.zeros(2, np.float32) for _ in range(2)],
            "tensor": values(rank, 2, np.float32),
            "group": "pair",
        }
        for rank in (2, 0)
    }
    agree(gloo, enter, "all_gather", given)


def test_objects_agree(gloo: Gloo, enter: Enter) -> None:
    cases: dict[str, Callable[[int], dict[str, Any]]] = {
        "broadcast_object_list": lambda rank: {"object_list": [rank, {"of": [rank]}], "src": 2},
        "all_gather_object": lambda rank: {"object_list": [None] * 4, "obj": "x" * rank},
        "gather_object": lambda rank: {
            "obj": {"rank": rank},
            "object_gather_list": [None] * 3 if rank == 1 else None,
            "dst": 1,
        },
        "scatter_object_list": lambda rank: {
            "scatter_object_output_list": [None, "kept"],
            "scatter_object_input_list": [1, "two", None] if rank == 0 else None,
        },
        "barrier": lambda _: {},
        "monitored_barrier": lambda _: {"timeout": 5.0, "wait_all_ranks": True},
    }
    for name, make in cases.items():
        agree(gloo, enter, name, {rank: make(rank) for rank in WORLD})


def test_asynchronous_collectives_agree(gloo: Gloo, enter: Enter) -> None:
    for name, argument in (("all_reduce", "tensor"), ("all_reduce_coalesced", "tensors")):
        parts = {rank: values(rank, 2, np.float32) for rank in WORLD}
        given = {
            rank: {argument: [part] if argument == "tensors" else part, "async_op": True}
            for rank, part in parts.items()
        }
        agree(gloo, enter, name, given)


@pytest.mark.parametrize("dtype", [*MOVED, np.int16], ids=name_of)
def test_messages_arrive(gloo: Gloo, dtype: Any) -> None:
    sent = values(1, 3, dtype)
    blank = np.zeros(3, dtype)
    gloo.call("send", {1: {"tensor": sent, "dst": 0, "tag": 5}}, wait=False)
    answers = gloo.call("recv", {0: {"tensor": blank, "src": 1, "tag": 5}})
    same(answers[0][1]["tensor"], sent)
    assert gloo.answers([1])[1][0] == "done"


def test_a_receive_from_anyone_takes_what_comes(gloo: Gloo) -> None:
    sent = values(2, 3, np.float32)
    gloo.call("send", {2: {"tensor": sent, "group_dst": 1, "group": "pair"}}, wait=False)
    answers = gloo.call("recv", {0: {"tensor": np.zeros(3, np.float32), "group": "pair"}})
    same(answers[0][1]["tensor"], sent)
    gloo.answers([2])


def test_a_batch_exchanges_in_any_order(gloo: Gloo) -> None:
    def message(op: str, rank: int, peer: int) -> dict[str, Any]:
        tensor = values(rank, 2, np.float32) if op == "isend" else np.zeros(2, np.float32)
        fields = {"op": op, "tensor": tensor, "peer": peer}
        return {**fields, "group_peer": None, "tag": 0, "group": None}

    answers = gloo.call(
        "batch_isend_irecv",
        {
            rank: {
                "p2p_op_list": [
                    message("irecv", rank, (rank - 1) % 3),
                    message("isend", rank, (rank + 1) % 3),
                ]
            }
            for rank in WORLD
        },
    )
    for rank in WORLD:
        received = answers[rank][1]["p2p_op_list"][0]["tensor"]
        same(received, values((rank - 1) % 3, 2, np.float32))


def test_lists_of_objects_are_sent_and_received(gloo: Gloo) -> None:
    gloo.call("send_object_list", {2: {"object_list": ["a", {"b": 1}], "dst": 1}}, wait=False)
    answers = gloo.call("recv_object_list", {1: {"object_list": [None, None], "src": 2}})
    assert answers[1][1]["object_list"] == ["a", {"b": 1}]
    gloo.answers([2])


def test_gloo_refuses_uneven_lists_that_torch_documents(gloo: Gloo) -> None:
    given = {
        rank: {
            "tensor_list": [np.zeros(count, np.float32) for count in (1, 2, 3)],
            "tensor": values(rank, rank + 1, np.float32),
        }
        for rank in WORLD
    }
    answers = gloo.call("all_gather", given)
    assert all("invalid tensor size" in answers[rank][2] for rank in WORLD)


def test_gloo_refuses_the_stacked_form(gloo: Gloo) -> None:
    given = {
        rank: {"output": np.zeros((3, 2), np.float32), "input": values(rank, 2, np.float32)}
        for rank in WORLD
    }
    answers = gloo.call("all_gather_single", given)
    assert all("invalid tensor size" in answers[rank][2] for rank in WORLD)
