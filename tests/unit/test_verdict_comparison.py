"""When two values are equal."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.verdict.comparison import WantedValue, differences


def equal(expected: Any, got: Any, slack: Any = None, **stated: Any) -> bool:
    return not differences(0, WantedValue(value=expected, **stated), got, slack)


def array(values: Any, dtype: Any = "float32") -> Any:
    return np.asarray(values, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64"])
def test_a_literal_equals_a_tensor_of_any_dtype(dtype: str) -> None:
    assert equal([1, 2, 3], array([1, 2, 3], dtype))
    assert not equal([1, 2, 4], array([1, 2, 3], dtype))


def test_a_literal_is_rounded_to_the_dtype() -> None:
    assert equal([0.1], array([0.1], ml_dtypes.bfloat16))
    assert equal([0.1], array([0.1], "float16"))
    assert equal([1e30], array([np.inf], "float16"))


def test_a_literal_that_an_integer_dtype_cannot_hold_is_different() -> None:
    assert not equal([300], array([44], "uint8"))
    assert not equal([1.5], array([1], "int32"))
    assert not equal([-1], array([255], "uint8"))
    assert not equal([2**64], array([0], "uint64"))
    assert not equal([10**400], array([0], "int64"))
    assert not equal([-(10**400)], array([0], "float32"))


def test_integers_are_exact_beyond_the_precision_of_a_double() -> None:
    assert not equal([2**53 + 1], array([2**53], "int64"))
    assert not equal(array([2**63], "uint64"), array([-(2**63)], "int64"))
    assert equal([2**63], array([2**63], "uint64"))


def test_sixteen_bit_floats_allow_one_unit_in_the_last_place() -> None:
    one = ml_dtypes.bfloat16(1.0)
    up = array([1.0078125], ml_dtypes.bfloat16)
    two_up = array([1.015625], ml_dtypes.bfloat16)
    assert equal(array([one], ml_dtypes.bfloat16), up)
    assert not equal(array([one], ml_dtypes.bfloat16), two_up)


def test_the_coarser_of_two_dtypes_gives_the_tolerance() -> None:
    assert equal(array([0.1], "float16"), array([0.1], "float64"), rtol=None)
    assert not equal([0.1], array([0.1001], "float64"))


def test_nan_equals_nan_and_infinity_only_itself() -> None:
    assert equal([np.nan], array([np.nan]))
    assert not equal([np.nan], array([1]))
    assert equal([np.inf], array([np.inf]))
    assert not equal([np.inf], array([1]))
    assert not equal([1], array([np.inf]))
    assert not equal([np.inf], array([-np.inf]))


def test_stated_tolerances_replace_the_default() -> None:
    assert equal([1], array([1.05]), rtol=0.1)
    assert equal([0], array([0.05]), atol=0.1)
    assert not equal([1], array([1 + 1e-6]), rtol=0.0, atol=0.0)


def test_slack_is_allowed_beside_the_tolerance() -> None:
    assert equal([0, 0], array([0.5, 0]), array([0.5, 0]))
    assert not equal([0, 0], array([0.5, 0]), array([0, 0.5]))


def test_complex_numbers_are_compared_whole() -> None:
    assert equal([1 + 2j], array([1 + 2j], "complex64"))
    assert not equal([1], array([1 + 2j], "complex64"))
    assert not equal(array([1 + 2j], "complex64"), array([1]))


def test_booleans_are_exact() -> None:
    assert equal([True, False], array([True, False], "bool"))
    assert not equal([True, True], array([True, False], "bool"))


def test_shapes_are_strict_and_the_message_helps() -> None:
    (found,) = differences(0, WantedValue(value=3), array([3, 3]))
    assert found.code == "shape_differs"
    assert "full(2, 3)" in found.message
    assert equal(3, array(3))
    assert not equal([3], array(3))
    assert not equal([[3]], array([3]))
    assert equal([], array([]))


def test_ragged_and_textual_expectations_differ_from_a_tensor() -> None:
    assert not equal([[1], [2, 3]], array([1, 2]))
    assert not equal("text", array([1]))
    assert not equal(None, array([1]))


def test_lists_of_tensors_are_compared_one_by_one() -> None:
    got = [array([1]), array([2, 3])]
    assert equal([[1], [2, 3]], got)
    (found,) = differences(0, WantedValue(value=[[1], [2, 4]]), got)
    assert found.item == (1,)
    (found,) = differences(0, WantedValue(value=[[1]]), got)
    assert found.code == "shape_differs"


def test_plain_objects_are_equal_by_value_and_type() -> None:
    assert equal({"a": [1, "x", None]}, {"a": [1, "x", None]})
    assert not equal({"a": 1}, {"a": 2})
    assert not equal({"a": True}, {"a": 1})
    assert not equal([1, 2], [1, 2, 3])
    assert equal(range(2), [0, 1])


def test_numbers_are_compared_as_scalars() -> None:
    assert equal(3, 3)
    assert equal(0.1 + 0.2, 0.3)
    assert not equal(3, 4)
    assert not equal([3], 3)


def test_an_undefined_value_equals_nothing() -> None:
    nothing = Undefined(cause="reduce off its destination")
    assert not equal(nothing, array([1]))
    assert not equal(array([1]), nothing)
    assert not equal(nothing, nothing)


def test_strict_comparison_asks_for_the_same_dtype() -> None:
    assert equal(array([1], "float32"), array([1], "float64"))
    assert not equal(array([1], "float32"), array([1], "float64"), strict=True)


def test_a_float8_is_exact() -> None:
    dtype = ml_dtypes.float8_e4m3fn
    assert equal([0.5, 448], array([0.5, 448], dtype))
    assert not equal([0.5], array([0.5625], dtype))
