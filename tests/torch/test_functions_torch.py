"""The functions of expressions on torch agree with those on NumPy, in values and in dtypes."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_scenarios.expressions.arrays import NumpyLibrary, TorchLibrary, kind
from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.functions import NumpyArrays, TorchArrays
from torch_scenarios.vocabulary import DTYPES

pytestmark = pytest.mark.torch

NUMPY = NumpyArrays()


@cache
def over_torch() -> TorchArrays:
    return TorchArrays(pytest.importorskip("torch"))


FLOATS = [dtype for dtype in DTYPES if "float" in dtype]

EXPRESSIONS = [
    "x",
    "+x",
    "-x",
    "~x",
    "x + x",
    "x - x",
    "x * x",
    "x / x",
    "x // x",
    "x % x",
    "x ** 2",
    "2 ** x",
    "x ** 0.5",
    "x + 1",
    "1 - x",
    "3 * x",
    "x / 3",
    "1 / x",
    "x // 2",
    "5 // x",
    "x % 2",
    "5 % x",
    "x + 0.1",
    "x * 1j",
    "x + True",
    "x & 1",
    "x | x",
    "x ^ 3",
    "x << 1",
    "x >> 1",
    "x == x",
    "x != 2",
    "x < 2.5",
    "1 <= x[0, 0]",
    "x > 1000",
    "x == 0.1",
    "2 in x",
    "exp(x)",
    "log(x)",
    "sqrt(x)",
    "tanh(x)",
    "log1p(x)",
    "expm1(x / 3)",
    "log2(x)",
    "floor(x / 3)",
    "ceil(x / 3)",
    "round(x / 2)",
    "floor(x)",
    "sign(x - 2)",
    "sign(x)",
    "square(x)",
    "isfinite(1 / (x - x))",
    "isnan(x / 0)",
    "any(x > 2)",
    "all(x, axis=0)",
    "any(x, axis=1, keepdims=True)",
    "argmax(x)",
    "argmin(x, axis=1)",
    "argmax(x, axis=0, keepdims=True)",
    "cumulative_sum(x, axis=1)",
    "cumulative_sum(x[0], include_initial=True)",
    "cumulative_sum(x, axis=0, dtype=float64)",
    "matrix_transpose(x)",
    "bit_length(9) + bit_count(7)",
    "abs(x)",
    "abs(-x)",
    "minimum(x, 2)",
    "maximum(x, x[0])",
    "where(x > 2, x, 0)",
    "where(x, x, x + 1)",
    "where(x > 2, 1, 0)",
    "sum(x)",
    "sum(x, axis=0)",
    "sum(x, axis=[0, 1], keepdims=True)",
    "sum(x, dtype=float64)",
    "prod(x)",
    "prod(x, axis=1)",
    "min(x)",
    "max(x, axis=0)",
    "min(x, axis=1, keepdims=True)",
    "mean(x)",
    "mean(x, axis=-1)",
    "sum([x, x, x])",
    "prod([x, x])",
    "max([x, x + 1])",
    "min([x, 2])",
    "mean([x, x])",
    "sum([x, 1])",
    "matmul(x, permute_dims(x, [1, 0]))",
    "x @ x[0]",
    "concat([x, x])",
    "concat([x, x], axis=1)",
    "concat([x, x], axis=None)",
    "stack([x, x], axis=1)",
    "reshape(x, -1)",
    "reshape(x, [3, 2])",
    "permute_dims(x, [1, 0])",
    "reshape(permute_dims(x, [1, 0]), [6])",
    "flip(x)",
    "flip(x, axis=1)",
    "roll(x, 1)",
    "roll(x, [1, 2], axis=[0, 1])",
    "astype(x, int8)",
    "astype(x, float16)",
    "astype(x, bool)",
    "astype(x, complex64)",
    "astype(x, uint16)",
    "astype(x / 3, float8_e4m3fn)",
    "x[0]",
    "x[0, 1]",
    "x[:, 0]",
    "x[1:, ::2]",
    "x[None]",
    "x[[1, 0]]",
    "x[x > 2]",
    "x[::-1]",
    "x[5]",
    "[row * 2 for row in x]",
    "shape(x)",
    "numel(x)",
    "len(x)",
    "int(x[0, 1])",
    "float(x[0, 1])",
    "bool(x[0, 0])",
    "full(3, x[0, 1])",
    "reshape(x, [4])",
    "x + zeros(5)",
]

MAKERS = [
    "full([2, 3], rank / 3, dtype={})",
    "zeros(3, dtype={})",
    "ones([], dtype={})",
    "arange(4, dtype={})",
    "linspace(0, 6, 4, dtype={})",
    "eye(2, 3, dtype={})",
    "random(5, 3, dtype={})",
    "astype([0.1, 2.7, -3.2, 1e9], {})",
]


def outcome(arrays: NumpyArrays, text: str, **variables: Any) -> Any:
    """Return what an expression gives, in terms that two libraries can be compared by."""
    scope = {**arrays.functions(), "__builtins__": {}, "rank": 1, **variables}
    try:
        return described(arrays, compile_expression(text, None).evaluate(scope))
    except (ArithmeticError, ValueError, TypeError, LookupError, RuntimeError):
        return "raises"


def described(arrays: NumpyArrays, value: Any) -> Any:
    if isinstance(value, list):
        return [described(arrays, item) for item in value]
    if not arrays.is_array(value):
        return type(value).__name__, repr(value)
    own = isinstance(value, np.ndarray)
    library = NumpyLibrary() if own else TorchLibrary(pytest.importorskip("torch"))
    host = library.to_numpy(value)
    return arrays.dtype(value), host.shape, host.tolist()


def same(first: Any, second: Any) -> bool:
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, tuple) and len(first) == 3 and first[:2] == second[:2]:
        # nothing is wider than 64 bits of float, so there the last bit is each library's own
        rtol = 1e-14 if first[0] in {"float64", "complex128"} else 0.0
        numbers = [np.asarray(each[2], np.complex128) for each in (first, second)]
        return np.allclose(numbers[0], numbers[1], rtol=rtol, atol=0.0, equal_nan=True)
    return bool(first == second)


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_libraries_compute_the_same(dtype: str) -> None:
    data = [[1, 0, 1], [0, 1, 1]] if dtype == "bool" else [[0, 1, 2], [3, 4, 5]]
    numbers, tensors = NUMPY.array(data, dtype), over_torch().array(data, dtype)
    for text in EXPRESSIONS:
        wanted = outcome(NUMPY, text, x=numbers)
        assert same(outcome(over_torch(), text, x=tensors), wanted), (text, dtype)


@pytest.mark.parametrize("dtype", [each for each in DTYPES if kind(each) in {"float", "complex"}])
def test_what_no_number_can_hold_is_computed_without_a_warning(dtype: str) -> None:
    inf, nan, most = math.inf, math.nan, 3.4e38
    for data in (
        [[inf, -inf, 1], [0, inf, inf]],
        [[nan, 1, -1], [0, nan, 2]],
        [[most, most, most], [-most, most, 0]],
        [[-1, -0.0, 0], [1e-45, -2.5, 1]],
    ):
        numbers = NUMPY.array(data, dtype)
        for text in EXPRESSIONS:
            # a warning is an exception that `outcome` does not take for an answer
            assert outcome(NUMPY, text, x=numbers) is not None, (text, data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_libraries_make_the_same(dtype: str) -> None:
    for text in MAKERS:
        wanted = outcome(NUMPY, text.format(dtype))
        assert same(outcome(over_torch(), text.format(dtype)), wanted), (text, dtype)


@pytest.mark.parametrize("first", DTYPES)
def test_two_dtypes_meet_in_the_same(first: str) -> None:
    for second in DTYPES:
        pairs = [
            {"x": arrays.array([[0, 1, 1]], first), "y": arrays.array([1, 1, 0], second)}
            for arrays in (NUMPY, over_torch())
        ]
        for text in (
            "x + y",
            "x * y",
            "x == y",
            "x < y",
            "where(x > 0, x, y)",
            "concat([x[0], y])",
        ):
            wanted = outcome(NUMPY, text, **pairs[0])
            assert same(outcome(over_torch(), text, **pairs[1]), wanted), (text, first, second)


@given(st.lists(st.floats(width=32), min_size=1, max_size=6), st.sampled_from(FLOATS))
@settings(max_examples=200, deadline=None)
def test_both_libraries_round_the_same(numbers: list[float], dtype: str) -> None:
    for text in (f"astype(x, {dtype})", f"astype(x, {dtype}) * 0.1", "x / 7", "x - 1"):
        wanted = outcome(NUMPY, text, x=NUMPY.array(numbers, "float32"))
        found = outcome(over_torch(), text, x=over_torch().array(numbers, "float32"))
        assert same(found, wanted), (text, numbers)


@given(st.lists(st.floats(width=32), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_what_is_computed_in_float64_differs_by_a_rounding_at_most(numbers: list[float]) -> None:
    for text in ("exp(x)", "log(x)", "sum(x)", "mean(x)", "x ** 3"):
        wanted = outcome(NUMPY, text, x=NUMPY.array(numbers, "float32"))
        found = outcome(over_torch(), text, x=over_torch().array(numbers, "float32"))
        assert found[:2] == wanted[:2], text
        assert np.allclose(found[2], wanted[2], rtol=2**-22, atol=1e-44, equal_nan=True), text


def test_a_torch_view_shares_the_memory() -> None:
    for text in ("x[0]", "x[:, 0]", "reshape(x, [6])", "permute_dims(x, [1, 0])", "x[0, 1]"):
        x = over_torch().array([[0, 1, 2], [3, 4, 5]], "float32")
        scope = {**over_torch().functions(), "__builtins__": {}, "x": x}
        compile_expression(text, None).evaluate(scope).fill_(9)
        assert (x == 9).any(), text


def test_both_libraries_have_the_same_strides() -> None:
    data = [[0, 1, 2], [3, 4, 5]]
    for text in ("permute_dims(x, [1, 0])", "x[:, 0]", "x[0:1]", "flip(permute_dims(x, [1, 0]))"):
        strides = []
        for arrays in (NUMPY, over_torch()):
            scope = {**arrays.functions(), "__builtins__": {}, "x": arrays.array(data, "float32")}
            made = compile_expression(text, None).evaluate(scope)
            for value in (made, arrays.copy(made)):
                found = [size // 4 for size in value.strides] if arrays is NUMPY else value.stride()
                strides.append(tuple(found))
        assert strides[:2] == strides[2:], text


def test_data_becomes_the_same_tensor() -> None:
    for data, dtype in (([[1, 2], [3, 4]], "bfloat16"), (3, "float8_e5m2"), ([2**63], "uint64")):
        numbers, tensors = NUMPY.array(data, dtype), over_torch().array(data, dtype)
        assert same(described(over_torch(), tensors), described(NUMPY, numbers))


def test_a_tensor_fills_a_shape_with_memory_of_its_own() -> None:
    made = over_torch().reshape(over_torch().array(3, "float32"), (2, 2))
    made[0, 0] = 1
    assert made.tolist() == [[1, 3], [3, 3]]
