"""What torch refuses at the call: mistakes beside the calls that are right, held against torch."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.execution.backends import kind_of
from torch_scenarios.operations import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tests.operations.conftest import Gloo
    from torch_scenarios.operations.base import Entry

Case = tuple[str, dict[str, Any], str]


def f32(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float32)


def f64(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float64)


def c64(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.complex64)


def p2p(op: str, **more: Any) -> dict[str, Any]:
    fields = {"tensor": f32(2), "peer": None, "group_peer": None, "tag": 0, "group": None}
    return {**fields, "op": op, **more}


INVALID, SHAPE, DTYPE = "invalid_argument", "shape_mismatch", "dtype_mismatch"

#: (operation, rank 0's arguments in a world of three, the kind that torch raises)
WRONG: list[Case] = [
    ("all_reduce", {"tensor": None}, INVALID),
    ("all_reduce_coalesced", {"tensors": []}, INVALID),
    ("all_reduce_coalesced", {"tensors": [f32(2), None]}, INVALID),
    ("all_reduce_coalesced", {"tensors": [f32(2), f64(2)]}, INVALID),
    ("all_reduce", {"tensor": c64(2), "op": "max"}, INVALID),
    ("all_reduce", {"tensor": f32(2), "op": "band"}, INVALID),
    ("all_reduce", {"tensor": f32(2).astype(np.float16), "op": "bxor"}, INVALID),
    ("all_reduce_coalesced", {"tensors": [f64(2)], "op": "bor"}, INVALID),
    ("all_reduce_coalesced", {"tensors": [f64(2), f64(2).astype(np.complex128)]}, INVALID),
    (
        "all_gather_coalesced",
        {
            "output_tensor_lists": [[f64(2)] * 2] * 3,
            "input_tensor_list": [f64(2), f64(2).astype(np.complex128)],
        },
        INVALID,
    ),
    ("reduce", {"tensor": f32(2), "op": "bor", "dst": 0}, INVALID),
    ("reduce_scatter", {"output": f32(1), "input_list": [f32(1)] * 3, "op": "band"}, INVALID),
    ("reduce_scatter_single", {"output": f32(1), "input": f32(3), "op": "bxor"}, INVALID),
    ("all_reduce_coalesced", {"tensors": [c64(2)], "op": "product"}, INVALID),
    ("reduce", {"tensor": c64(2), "op": "min", "dst": 0}, INVALID),
    ("reduce_scatter", {"output": c64(1), "input_list": [c64(1)] * 3, "op": "bor"}, INVALID),
    ("reduce_scatter_single", {"output": c64(1), "input": c64(3), "op": "max"}, INVALID),
    ("broadcast", {"tensor": None, "src": 0}, INVALID),
    ("broadcast", {"tensor": f32(2)}, INVALID),
    ("broadcast", {"tensor": f32(2), "src": 0, "group_src": 0}, INVALID),
    ("broadcast", {"tensor": f32(2), "src": 3}, INVALID),
    ("broadcast", {"tensor": f32(2), "group_src": -1}, INVALID),
    ("broadcast", {"tensor": f32(2), "src": 1, "group": "pair"}, INVALID),
    ("reduce", {"tensor": f32(2)}, INVALID),
    ("reduce", {"tensor": f32(2), "dst": 7}, INVALID),
    ("all_gather", {"tensor_list": None, "tensor": f32(2)}, INVALID),
    ("all_gather", {"tensor_list": [f32(2), f32(2), None], "tensor": f32(2)}, INVALID),
    ("all_gather", {"tensor_list": [f32(2)] * 2, "tensor": f32(2)}, INVALID),
    ("all_gather", {"tensor_list": [f64(2)] * 3, "tensor": f32(2)}, INVALID),
    ("all_gather", {"tensor_list": [f32(3)] * 3, "tensor": f32(2)}, SHAPE),
    ("all_gather_single", {"output": None, "input": f32(2)}, INVALID),
    ("all_gather_single", {"output": f32(5), "input": f32(2)}, SHAPE),
    ("all_gather_single", {"output": f64(6), "input": f32(2)}, DTYPE),
    ("all_gather_coalesced", {"output_tensor_lists": [], "input_tensor_list": []}, INVALID),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f32(2)]] * 2, "input_tensor_list": [f32(2)]},
        INVALID,
    ),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f32(2)]] * 3, "input_tensor_list": [f32(2), f32(2)]},
        INVALID,
    ),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f32(3)]] * 3, "input_tensor_list": [f32(2)]},
        SHAPE,
    ),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f64(2)]] * 3, "input_tensor_list": [f32(2)]},
        DTYPE,
    ),
    ("gather", {"tensor": f32(2), "dst": 0}, INVALID),
    ("gather", {"tensor": f32(2), "gather_list": [f32(2)] * 3, "dst": 1}, INVALID),
    ("gather", {"tensor": f32(2), "gather_list": [f32(2)] * 2, "dst": 0}, INVALID),
    ("gather", {"tensor": f32(2), "gather_list": [f32(3)] * 3, "dst": 0}, SHAPE),
    ("gather", {"tensor": f32(2), "gather_list": [f64(2)] * 3, "dst": 0}, INVALID),
    ("scatter", {"tensor": f32(2), "src": 0}, INVALID),
    ("scatter", {"tensor": f32(2), "scatter_list": [f32(2)] * 3, "src": 1}, INVALID),
    ("scatter", {"tensor": f32(2), "scatter_list": [f32(2)] * 2, "src": 0}, INVALID),
    ("scatter", {"tensor": f32(2), "scatter_list": [f32(2), f32(2), f32(3)], "src": 0}, SHAPE),
    ("reduce_scatter", {"output": f32(2), "input_list": [f32(2)] * 2}, INVALID),
    ("reduce_scatter", {"output": f32(2), "input_list": [f32(3)] * 3}, SHAPE),
    ("reduce_scatter", {"output": f64(2), "input_list": [f32(2)] * 3}, INVALID),
    ("reduce_scatter_single", {"output": f32(2), "input": f32(5)}, SHAPE),
    ("reduce_scatter_single", {"output": f64(2), "input": f32(6)}, DTYPE),
    (
        "all_to_all",
        {"output_tensor_list": [f32(1)] * 2, "input_tensor_list": [f32(1)] * 3},
        INVALID,
    ),
    (
        "all_to_all",
        {"output_tensor_list": [f32(1)] * 3, "input_tensor_list": [f32(1)] * 2},
        INVALID,
    ),
    (
        "all_to_all",
        {"output_tensor_list": [f64(1)] * 3, "input_tensor_list": [f32(1)] * 3},
        INVALID,
    ),
    (
        "all_to_all_single",
        {"output": f32(3), "input": f32(3), "input_split_sizes": [1, 2]},
        INVALID,
    ),
    (
        "all_to_all_single",
        {"output": f32(3), "input": f32(3), "input_split_sizes": [1, 1, 2]},
        SHAPE,
    ),
    (
        "all_to_all_single",
        {"output": f32(3), "input": f32(3), "output_split_sizes": [3, 1, 0]},
        SHAPE,
    ),
    (
        "all_to_all_single",
        {"output": f32(4), "input": f32(3), "input_split_sizes": [1, 1, 1]},
        SHAPE,
    ),
    ("all_to_all_single", {"output": f64(3), "input": f32(3)}, INVALID),
    ("send", {"tensor": f32(2)}, INVALID),
    ("send", {"tensor": None, "dst": 1}, INVALID),
    ("send", {"tensor": f32(2), "dst": 0}, INVALID),
    ("send", {"tensor": f32(2), "dst": 3}, INVALID),
    ("send", {"tensor": f32(2), "group_dst": 5}, INVALID),
    ("send", {"tensor": f32(2), "dst": 1, "group": "pair"}, INVALID),
    ("send", {"tensor": f32(2), "dst": 1, "tag": -1}, INVALID),
    ("send", {"tensor": f32(2), "dst": 1, "group_dst": 1}, INVALID),
    ("isend", {"tensor": f32(2), "dst": 0}, INVALID),
    ("recv", {"tensor": f32(2), "src": 0}, INVALID),
    ("recv", {"tensor": f32(2), "src": 9}, INVALID),
    ("recv", {"tensor": f32(2), "src": 1, "group": "pair"}, INVALID),
    ("irecv", {"tensor": f32(2), "src": 1, "tag": -1}, INVALID),
    ("batch_isend_irecv", {"p2p_op_list": []}, INVALID),
    ("batch_isend_irecv", {"p2p_op_list": [p2p("isend", peer=0)]}, INVALID),
    ("batch_isend_irecv", {"p2p_op_list": [p2p("irecv")]}, INVALID),
    ("batch_isend_irecv", {"p2p_op_list": [p2p("irecv", group_peer=4)]}, INVALID),
    ("broadcast_object_list", {"object_list": None}, INVALID),
    ("broadcast_object_list", {"object_list": []}, INVALID),
    ("broadcast_object_list", {"object_list": [1], "src": 9}, INVALID),
    ("gather_object", {"obj": 1}, INVALID),
    ("gather_object", {"obj": 1, "dst": 1, "object_gather_list": [None] * 3}, INVALID),
    ("scatter_object_list", {"scatter_object_output_list": [], "src": 1}, INVALID),
    ("scatter_object_list", {"scatter_object_output_list": [None], "src": 0}, INVALID),
    ("send_object_list", {"object_list": [], "dst": 1}, INVALID),
    ("send_object_list", {"object_list": [1], "dst": 0}, INVALID),
    ("send_object_list", {"object_list": [1]}, INVALID),
    ("recv_object_list", {"object_list": [1]}, INVALID),
    ("recv_object_list", {"object_list": [1], "src": 0}, INVALID),
    ("new_group", {"name": "g", "group_ranks": []}, INVALID),
    ("new_group", {"name": "g", "group_ranks": [0, 0]}, INVALID),
    ("new_group", {"name": "g", "group_ranks": [0, 3]}, INVALID),
]

#: refused by the table, and not by the call itself: it fails later, or only on another backend
WRONG_LATER: list[Case] = [
    ("all_gather_single", {"output": f32(2, 3), "input": f32(2)}, SHAPE),
    (
        "scatter_object_list",
        {"scatter_object_output_list": [None], "scatter_object_input_list": [1, 2]},
        INVALID,
    ),
    ("all_gather_object", {"object_list": None, "obj": 1}, INVALID),
    ("all_to_all_single", {"output": f32(), "input": f32()}, SHAPE),
    (
        "all_to_all_single",
        {"output": f32(3), "input": f32(3), "input_split_sizes": [-1, 2, 2]},
        INVALID,
    ),
    (
        "batch_isend_irecv",
        {"p2p_op_list": [p2p("isend", peer=2), p2p("isend", peer=2, group="pair")]},
        INVALID,
    ),
]

#: (operation, rank 0's arguments): nothing to refuse
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("all_reduce", {"tensor": f32()}),
    ("all_reduce", {"tensor": c64(2), "op": "avg"}),
    ("all_reduce_coalesced", {"tensors": [f32(2), f32(0)]}),
    ("all_reduce_coalesced", {"tensors": [f32(2), c64(2)]}),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f32(2), c64(1)]] * 3, "input_tensor_list": [f32(2), c64(1)]},
    ),
    ("broadcast", {"tensor": f32(2), "src": 2, "group": "pair"}),
    ("broadcast", {"tensor": f32(2), "group_src": 1, "group": "pair"}),
    ("reduce", {"tensor": f32(2), "group_dst": 0}),
    ("all_gather", {"tensor_list": [f32(2), f32(1), f32(0)], "tensor": f32(2)}),
    ("all_gather_single", {"output": f32(6), "input": f32(2)}),
    ("all_gather_single", {"output": f32(3, 2), "input": f32(2)}),
    ("all_gather_single", {"output": f32(3), "input": f32()}),
    ("all_gather_single", {"output": f32(6, 4), "input": f32(2, 4)}),
    (
        "all_gather_coalesced",
        {"output_tensor_lists": [[f32(2), f32(1)]] * 3, "input_tensor_list": [f32(2), f32(1)]},
    ),
    ("gather", {"tensor": f32(2), "gather_list": [f32(2)] * 3}),
    ("gather", {"tensor": f32(2), "gather_list": [], "dst": 1}),
    ("gather", {"tensor": f32(2), "dst": 2}),
    ("scatter", {"tensor": f32(2), "scatter_list": [f32(2)] * 3}),
    ("scatter", {"tensor": f32(2), "src": 1}),
    ("reduce_scatter", {"output": f32(2), "input_list": [f32(2), f32(3), f32(0)]}),
    ("reduce_scatter_single", {"output": f32(2), "input": f32(6)}),
    ("reduce_scatter_single", {"output": f32(2), "input": f32(3, 2)}),
    (
        "all_to_all",
        {"output_tensor_list": [f32(1)] * 3, "input_tensor_list": [f32(1), f32(2), f32(3)]},
    ),
    ("all_to_all_single", {"output": f32(3), "input": f32(6)}),
    (
        "all_to_all_single",
        {"output": f32(3), "input": f32(4), "input_split_sizes": [0, 4, 0]},
    ),
    ("barrier", {}),
    ("monitored_barrier", {"timeout": 1.0}),
    ("send", {"tensor": f32(2), "dst": 1}),
    ("send", {"tensor": f32(2), "group_dst": 0, "group": "pair"}),
    ("recv", {"tensor": f32(2)}),
    ("recv", {"tensor": f32(2), "src": 2, "tag": 2**31 - 1}),
    ("batch_isend_irecv", {"p2p_op_list": [p2p("isend", peer=2), p2p("irecv", group_peer=1)]}),
    ("broadcast_object_list", {"object_list": [], "src": 1}),
    ("all_gather_object", {"object_list": [None] * 3}),
    ("gather_object", {"obj": None, "dst": 1}),
    ("scatter_object_list", {"scatter_object_output_list": [None], "src": 1}),
    ("send_object_list", {"object_list": [None], "dst": 1}),
    ("recv_object_list", {"object_list": [None, None], "group_src": 2}),
    ("new_group", {"name": "g", "group_ranks": [2, 0]}),
    ("new_group", {"name": "g"}),
]


def ids(cases: list[Any]) -> list[str]:
    return [f"{case[0]}-{index}" for index, case in enumerate(cases)]


@pytest.mark.parametrize("case", WRONG + WRONG_LATER, ids=ids(WRONG + WRONG_LATER))
def test_a_wrong_call_is_refused(case: Case, enter: Callable[..., list[Entry]]) -> None:
    name, arguments, kind = case
    (entry,) = enter(name, {0: arguments})
    refusal = BY_NAME[name].refuse(entry)
    assert refusal is not None
    assert refusal.kind == kind
    assert refusal.message


@pytest.mark.parametrize("case", RIGHT, ids=ids(RIGHT))
def test_a_right_call_is_not_refused(
    case: tuple[str, dict[str, Any]], enter: Callable[..., list[Entry]]
) -> None:
    name, arguments = case
    (entry,) = enter(name, {0: arguments})
    assert BY_NAME[name].refuse(entry) is None


def test_messages_on_a_group_of_others_are_refused(enter: Callable[..., list[Entry]]) -> None:
    (entry,) = enter("send", {1: {"tensor": f32(2), "dst": 0, "group": "pair"}})
    refusal = BY_NAME["send"].refuse(entry)
    assert refusal is not None
    assert refusal.kind == "not_member"


@pytest.mark.torch
@pytest.mark.parametrize("case", sampled([(case,) for case in WRONG], 4), ids=ids(WRONG))
def test_torch_refuses_the_call_with_that_kind_before_anyone_else_comes(
    case: Case, refusing: Gloo
) -> None:
    name, arguments, kind = case
    how, raised, words = refusing.call(name, {0: arguments})[0]
    assert how == "raised"
    assert kind_of(getattr(builtins, raised)(words)) == kind, f"{raised}: {words}"


@pytest.mark.parametrize(
    ("name", "even", "odd"),
    [
        (
            "all_gather",
            {"tensor_list": [f32(2)] * 3, "tensor": f32(2)},
            {"tensor_list": [f32(2), f32(1), f32(2)], "tensor": f32(2)},
        ),
        (
            "all_to_all",
            {"output_tensor_list": [f32(1)] * 3, "input_tensor_list": [f32(1)] * 3},
            {"output_tensor_list": [f32(1)] * 3, "input_tensor_list": [f32(1), f32(2), f32(1)]},
        ),
        (
            "all_gather_single",
            {"output": f32(6), "input": f32(2)},
            {"output": f32(3, 2), "input": f32(2)},
        ),
        (
            "reduce_scatter_single",
            {"output": f32(2), "input": f32(6)},
            {"output": f32(2), "input": f32(3, 2)},
        ),
    ],
)
def test_a_backend_may_refuse_shapes_that_torch_allows(
    name: str, even: dict[str, Any], odd: dict[str, Any], enter: Callable[..., list[Entry]]
) -> None:
    operation = BY_NAME[name]
    (usual,), (unusual,) = enter(name, {0: even}), enter(name, {0: odd})
    assert operation.backend_kinds(usual) == {"unsupported"}
    assert operation.backend_kinds(unusual) == {"unsupported", SHAPE}
