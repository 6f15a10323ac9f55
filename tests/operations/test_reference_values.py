"""What each operation leaves on each rank, against values written out by hand.

Groups: the world is ranks 0, 1, 2; `pair` has ranks 2 and 0 as its group ranks 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective, PremulSum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from torch_scenarios.operations.base import Entry

    Enter = Callable[[str, Mapping[int, Mapping[str, Any]]], list[Entry]]

WORLD = range(3)


def f32(*values: float) -> NDArray[Any]:
    return np.array(values, np.float32)


def left(enter: Enter, name: str, arguments: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
    """Return each rank's results, plain, and prove that no argument was changed in place."""
    operation = BY_NAME[name]
    assert isinstance(operation, Collective)
    entries = enter(name, arguments)
    before = [repr(entry.arguments) for entry in entries]
    results = operation.reference(entries)
    assert [repr(entry.arguments) for entry in entries] == before
    return {
        entry.rank: {key: plain(value) for key, value in result.items()}
        for entry, result in zip(entries, results, strict=True)
    }


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def test_all_reduce_gives_everyone_the_sum(enter: Enter) -> None:
    given = {rank: {"tensor": f32(rank, 10 * rank)} for rank in WORLD}
    assert left(enter, "all_reduce", given) == {key: {"tensor": [3, 30]} for key in WORLD}


@pytest.mark.parametrize(
    ("op", "result"),
    [
        ("sum", 12),
        ("avg", 4),
        ("product", 30),
        ("min", 1),
        ("max", 6),
        (PremulSum(factor=0.5), 6),
    ],
)
def test_reduce_ops_on_floats(enter: Enter, op: object, result: float) -> None:
    given = {rank: {"tensor": f32(part), "op": op} for rank, part in enumerate((1, 6, 5))}
    assert left(enter, "all_reduce", given)[0]["tensor"] == [result]


@pytest.mark.parametrize(
    ("op", "result"),
    [("band", 0b1000), ("bor", 0b1110), ("bxor", 0b1110), ("sum", 30), ("avg", 10), ("max", 12)],
)
def test_reduce_ops_on_integers(enter: Enter, op: str, result: int) -> None:
    given = {
        rank: {"tensor": np.array([bits], np.int32), "op": op}
        for rank, bits in enumerate((0b1010, 0b1100, 0b1000))
    }
    assert left(enter, "all_reduce", given)[1]["tensor"] == [result]


@pytest.mark.parametrize(("op", "dtype"), [("band", np.float32), ("min", np.complex64)])
def test_an_op_that_the_dtype_has_not_is_undefined(enter: Enter, op: str, dtype: Any) -> None:
    given = {rank: {"tensor": np.ones(1, dtype), "op": op} for rank in WORLD}
    assert isinstance(left(enter, "all_reduce", given)[0]["tensor"], Undefined)


def test_integers_wrap_in_their_width(enter: Enter) -> None:
    given = {rank: {"tensor": np.array([100], np.int8)} for rank in WORLD}
    assert left(enter, "all_reduce", given)[0]["tensor"] == [300 - 256]


def test_a_bfloat16_sum_is_rounded_once(enter: Enter) -> None:
    parts = (256, 1, 1)
    given = {
        rank: {"tensor": np.array([part], ml_dtypes.bfloat16)} for rank, part in enumerate(parts)
    }
    assert left(enter, "all_reduce", given)[0]["tensor"] == [258]


def test_complex_numbers_add_up(enter: Enter) -> None:
    given = {rank: {"tensor": np.array([complex(rank, -rank)], np.complex64)} for rank in WORLD}
    assert left(enter, "all_reduce", given)[0]["tensor"] == [3 - 3j]


def test_bools_are_combined_as_truth_values(enter: Enter) -> None:
    given = {rank: {"tensor": np.array([rank == 1, True])} for rank in WORLD}
    assert left(enter, "all_reduce", given)[0]["tensor"] == [True, True]


@pytest.mark.parametrize("shape", [(0,), (2, 0), ()])
def test_empty_and_scalar_tensors_keep_their_shape(enter: Enter, shape: tuple[int, ...]) -> None:
    entries = enter("all_reduce", {rank: {"tensor": np.ones(shape, np.float32)} for rank in WORLD})
    result = BY_NAME["all_reduce"].reference(entries)[0]["tensor"]  # type: ignore[attr-defined]
    assert result.shape == shape


def test_all_reduce_coalesced_reduces_each_tensor(enter: Enter) -> None:
    given = {rank: {"tensors": [f32(rank), f32(rank, 1)], "op": "max"} for rank in WORLD}
    assert left(enter, "all_reduce_coalesced", given)[2] == {"tensors": [[2], [2, 1]]}


def test_reduce_is_undefined_off_its_destination(enter: Enter) -> None:
    given = {rank: {"tensor": f32(rank), "dst": 1} for rank in WORLD}
    results = left(enter, "reduce", given)
    assert results[1] == {"tensor": [3]}
    assert all(isinstance(results[rank]["tensor"], Undefined) for rank in (0, 2))


def test_reduce_counts_its_root_in_the_world_or_in_the_group(enter: Enter) -> None:
    for root in ({"dst": 0}, {"group_dst": 1}):
        given = {rank: {"tensor": f32(rank + 1), "group": "pair", **root} for rank in (0, 2)}
        results = left(enter, "reduce", given)
        assert results[0] == {"tensor": [4]}
        assert isinstance(results[2]["tensor"], Undefined)


def test_broadcast_copies_the_source(enter: Enter) -> None:
    given = {rank: {"tensor": f32(rank), "src": 2} for rank in WORLD}
    assert left(enter, "broadcast", given) == {key: {"tensor": [2]} for key in WORLD}


def test_all_gather_follows_the_order_of_group_ranks(enter: Enter) -> None:
    given = {
        rank: {"tensor_list": [f32(0), f32(0)], "tensor": f32(rank), "group": "pair"}
        for rank in (0, 2)
    }
    assert left(enter, "all_gather", given) == {key: {"tensor_list": [[2], [0]]} for key in (0, 2)}


def test_all_gather_takes_uneven_tensors(enter: Enter) -> None:
    given = {
        rank: {"tensor_list": [np.zeros(n, np.float32) for n in WORLD], "tensor": f32(*[7] * rank)}
        for rank in WORLD
    }
    assert left(enter, "all_gather", given)[0] == {"tensor_list": [[], [7], [7, 7]]}


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_all_gather_single_concatenates_or_stacks(enter: Enter, shape: tuple[int, ...]) -> None:
    given = {
        rank: {"output": np.zeros(shape, np.float32), "input": f32(rank, rank)} for rank in WORLD
    }
    expected = np.array([0, 0, 1, 1, 2, 2]).reshape(shape).tolist()
    assert left(enter, "all_gather_single", given)[1] == {"output": expected}


def test_all_gather_coalesced_gives_each_member_a_list(enter: Enter) -> None:
    given = {
        rank: {
            "output_tensor_lists": [[f32(0), f32(0, 0)]] * 3,
            "input_tensor_list": [f32(rank), f32(rank, 5)],
        }
        for rank in WORLD
    }
    expected = [[[0], [0, 5]], [[1], [1, 5]], [[2], [2, 5]]]
    assert left(enter, "all_gather_coalesced", given)[0] == {"output_tensor_lists": expected}


def test_gather_fills_the_destination_alone(enter: Enter) -> None:
    given: dict[int, dict[str, Any]] = {rank: {"tensor": f32(rank), "dst": 1} for rank in WORLD}
    given[1]["gather_list"] = [f32(9)] * 3
    assert left(enter, "gather", given) == {0: {}, 1: {"gather_list": [[0], [1], [2]]}, 2: {}}


def test_scatter_hands_out_by_group_rank(enter: Enter) -> None:
    given: dict[int, dict[str, Any]] = {
        rank: {"tensor": f32(0), "src": 2, "group": "pair"} for rank in (0, 2)
    }
    given[2]["scatter_list"] = [f32(10), f32(20)]
    assert left(enter, "scatter", given) == {0: {"tensor": [20]}, 2: {"tensor": [10]}}


def test_reduce_scatter_takes_uneven_parts(enter: Enter) -> None:
    given = {
        rank: {
            "output": np.zeros(rank, np.float32),
            "input_list": [np.full(n, rank + 1, np.float32) for n in WORLD],
        }
        for rank in WORLD
    }
    expected: dict[int, Any] = {0: [], 1: [6], 2: [6, 6]}
    assert left(enter, "reduce_scatter", given) == {
        rank: {"output": value} for rank, value in expected.items()
    }


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_reduce_scatter_single_keeps_one_part(enter: Enter, shape: tuple[int, ...]) -> None:
    given = {
        rank: {
            "output": f32(0, 0),
            "input": np.arange(6, dtype=np.float32).reshape(shape),
            "op": "sum",
        }
        for rank in WORLD
    }
    assert left(enter, "reduce_scatter_single", given)[2] == {"output": [12, 15]}


def test_reduce_scatter_single_of_nothing_is_nothing(enter: Enter) -> None:
    given = {rank: {"output": f32(), "input": f32()} for rank in WORLD}
    assert left(enter, "reduce_scatter_single", given)[0] == {"output": []}


def test_all_to_all_transposes(enter: Enter) -> None:
    given = {
        rank: {
            "output_tensor_list": [f32(0)] * 3,
            "input_tensor_list": [f32(10 * rank + to) for to in WORLD],
        }
        for rank in WORLD
    }
    assert left(enter, "all_to_all", given)[1] == {"output_tensor_list": [[1], [11], [21]]}


def test_all_to_all_single_cuts_evenly_without_sizes(enter: Enter) -> None:
    given = {
        rank: {
            "output": np.zeros((3, 2), np.float32),
            "input": np.full((3, 2), rank, np.float32),
        }
        for rank in WORLD
    }
    assert left(enter, "all_to_all_single", given)[0] == {"output": [[0, 0], [1, 1], [2, 2]]}


def test_all_to_all_single_follows_its_split_sizes(enter: Enter) -> None:
    given = {
        0: {"output": f32(0), "input": f32(0, 1), "input_split_sizes": [1, 1, 0]},
        1: {"output": f32(0, 0, 0), "input": f32(10, 11), "input_split_sizes": [0, 1, 1]},
        2: {"output": f32(0), "input": f32(20), "input_split_sizes": [0, 1, 0]},
    }
    given[0]["output_split_sizes"] = [1, 0, 0]
    given[1]["output_split_sizes"] = [1, 1, 1]
    given[2]["output_split_sizes"] = [0, 1, 0]
    assert left(enter, "all_to_all_single", given) == {
        0: {"output": [0]},
        1: {"output": [1, 10, 20]},
        2: {"output": [11]},
    }


def test_barriers_store_nothing(enter: Enter) -> None:
    for name in ("barrier", "monitored_barrier"):
        given: dict[int, dict[str, Any]] = {rank: {} for rank in WORLD}
        assert left(enter, name, given) == {0: {}, 1: {}, 2: {}}


def test_objects_are_broadcast(enter: Enter) -> None:
    given = {rank: {"object_list": [rank, {"of": rank}], "src": 1} for rank in WORLD}
    expected = {"object_list": [1, {"of": 1}]}
    assert left(enter, "broadcast_object_list", given) == dict.fromkeys(WORLD, expected)


def test_gathered_objects_leave_further_places_alone(enter: Enter) -> None:
    given = {rank: {"object_list": [None] * 3 + ["kept"], "obj": [rank]} for rank in WORLD}
    expected = {"object_list": [[0], [1], [2], "kept"]}
    assert left(enter, "all_gather_object", given)[2] == expected


def test_objects_are_gathered_on_the_destination(enter: Enter) -> None:
    given: dict[int, dict[str, Any]] = {rank: {"obj": rank} for rank in WORLD}
    given[0]["object_gather_list"] = [None] * 3
    expected = {0: {"object_gather_list": [0, 1, 2]}, 1: {}, 2: {}}
    assert left(enter, "gather_object", given) == expected


def test_scattered_objects_fill_the_first_place(enter: Enter) -> None:
    given = {
        rank: {
            "scatter_object_output_list": [None, "kept"],
            "scatter_object_input_list": ["a", "b", "c"] if rank == 0 else None,
        }
        for rank in WORLD
    }
    assert left(enter, "scatter_object_list", given)[1] == {
        "scatter_object_output_list": ["b", "kept"]
    }
