"""The functions of expressions on NumPy: values, dtypes, views, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import torch_scenarios
from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.expressions.signatures import EXAMPLE_NAMES, EXAMPLES, FUNCTION_NAMES
from torch_scenarios.limits import Limits
from torch_scenarios.vocabulary import DTYPES

ARRAYS = NumpyArrays()


def held() -> dict[str, Any]:
    """Return what the expressions below read."""
    return {
        "x": ARRAYS.array([[1, 2, 3], [4, 5, 6]], "float32"),
        "y": ARRAYS.array([1, 2, 3], "float32"),
        "i": ARRAYS.array([1, 2, 300], "int32"),
        "u": ARRAYS.array([1, 2, 3], "uint8"),
        "h": ARRAYS.array([1, 2, 3], "bfloat16"),
        "d": ARRAYS.array([1, 2, 3], "float64"),
        "k": ARRAYS.array([True, False, True], "bool"),
        "c": ARRAYS.array([3 + 4j, 1, 0], "complex64"),
        "xs": [ARRAYS.array([1, 2], "float32"), ARRAYS.array([3, 4], "float32")],
        "none": None,
    }


def value_of(text: str, **variables: Any) -> Any:
    scope = {**ARRAYS.functions(), "__builtins__": {}, "rank": 1, "world_size": 4}
    return compile_expression(text, None).evaluate({**scope, **held(), **variables})


@pytest.mark.parametrize(
    ("text", "dtype", "values"),
    [
        ("full(3, rank + 1)", "float32", [2, 2, 2]),
        ("full([2, 1], 7, dtype=int64)", "int64", [[7], [7]]),
        ("full(2, y[1])", "float32", [2, 2]),
        ("full([], 3)", "float32", 3),
        ("full(2, 1j)", "complex64", [1j, 1j]),
        ("zeros(2)", "float32", [0, 0]),
        ("ones([1, 2], bfloat16)", "bfloat16", [[1, 1]]),
        ("arange(3)", "float32", [0, 1, 2]),
        ("arange(1, 7, 2, dtype=int8)", "int8", [1, 3, 5]),
        ("arange(3, 0, -1)", "float32", [3, 2, 1]),
        ("arange(0)", "float32", []),
        ("linspace(0, 1, 3)", "float32", [0, 0.5, 1]),
        ("linspace(0, 1, num=2, endpoint=False)", "float32", [0, 0.5]),
        ("eye(2)", "float32", [[1, 0], [0, 1]]),
        ("eye(2, 3, k=1)", "float32", [[0, 1, 0], [0, 0, 1]]),
        ("x + 1", "float32", [[2, 3, 4], [5, 6, 7]]),
        ("1 - y", "float32", [0, -1, -2]),
        ("y + [1, 2, 3]", "float32", [2, 4, 6]),
        ("i + 1", "int32", [2, 3, 301]),
        ("i + u", "int32", [2, 4, 303]),
        ("i + y", "float32", [2, 4, 303]),
        ("i + 0.5", "float32", [1.5, 2.5, 300.5]),
        ("h + y", "float32", [2, 4, 6]),
        ("y + d", "float64", [2, 4, 6]),
        ("u - 2", "uint8", [255, 0, 1]),
        ("-u", "uint8", [255, 254, 253]),
        ("i / 2", "float32", [0.5, 1, 150]),
        ("-i // 2", "int32", [-1, -1, -150]),
        ("-y % 2", "float32", [1, 0, 1]),
        ("i ** 2", "int32", [1, 4, 90000]),
        ("2 ** y", "float32", [2, 4, 8]),
        ("i & 3 | 4", "int32", [5, 6, 4]),
        ("u << 1", "uint8", [2, 4, 6]),
        ("~k", "bool", [False, True, False]),
        ("k + k", "bool", [True, False, True]),
        ("y > 1", "bool", [False, True, True]),
        ("i == 300", "bool", [False, False, True]),
        ("u < 300", "bool", [True, True, True]),
        ("i > 1.5", "bool", [False, True, True]),
        ("y == none", None, False),
        ("y[0] < y[1] < y[2]", "bool", True),
        ("2 in y", None, True),
        ("7 not in y", None, True),
        ("exp(0 * y)", "float32", [1, 1, 1]),
        ("log(i / i)", "float32", [0, 0, 0]),
        ("sqrt(y * y)", "float32", [1, 2, 3]),
        ("sqrt(i * i)", "float32", [1, 2, 300]),
        ("sqrt(9)", None, 3.0),
        ("abs(-y)", "float32", [1, 2, 3]),
        ("abs(c)", "float32", [5, 1, 0]),
        ("abs(-3)", None, 3),
        ("minimum(y, 2)", "float32", [1, 2, 2]),
        ("maximum(i, [0, 9, 0])", "float32", [1, 9, 300]),
        ("maximum(1, 2)", None, 2),
        ("minimum(2 ** 70, 1)", None, 1),
        ("bool(maximum(1e999 - 1e999, 1) < 5)", None, False),
        ("where(y > 1, y, 0)", "float32", [0, 2, 3]),
        ("where(k, i, u)", "int32", [1, 2, 300]),
        ("where(rank == 1, 5, 6)", None, 5),
        ("where(k, 1, 0)", "float32", [1, 0, 1]),
        ("sum(y)", "float32", 6),
        ("sum(i)", "int64", 303),
        ("sum(k)", "int64", 2),
        ("sum(u)", "uint64", 6),
        ("sum(x, 0)", "float32", [5, 7, 9]),
        ("sum(x, axis=-1, keepdims=True)", "float32", [[6], [15]]),
        ("sum(i, dtype=float32)", "float32", 303),
        ("prod(y)", "float32", 6),
        ("min(x)", "float32", 1),
        ("max(x, axis=0)", "float32", [4, 5, 6]),
        ("mean(x)", "float32", 3.5),
        ("mean(u)", "float32", 2),
        ("mean(x, axis=1)", "float32", [2, 5]),
        ("sum(xs)", "float32", [4, 6]),
        ("prod(xs)", "float32", [3, 8]),
        ("max(xs)", "float32", [3, 4]),
        ("min([i, 2])", "int32", [1, 2, 2]),
        ("mean(xs)", "float32", [2, 3]),
        ("mean([1, 2])", None, 1.5),
        ("sum([u, u])", "uint8", [2, 4, 6]),
        ("sum([k, k])", "bool", [True, False, True]),
        ("sum([])", None, 0),
        ("prod(range(1, 5))", None, 24),
        ("matmul(x, y)", "float32", [14, 32]),
        ("x @ permute_dims(x, [1, 0])", "float32", [[14, 32], [32, 77]]),
        ("i @ i", "int32", 90005),
        ("concat(xs)", "float32", [1, 2, 3, 4]),
        ("concat([x, x], axis=1)[0]", "float32", [1, 2, 3, 1, 2, 3]),
        ("concat([x, x], axis=None)[5:7]", "float32", [6, 1]),
        ("concat([i, y])", "float32", [1, 2, 300, 1, 2, 3]),
        ("stack(xs)", "float32", [[1, 2], [3, 4]]),
        ("stack(xs, axis=1)", "float32", [[1, 3], [2, 4]]),
        ("stack([rank, 7])", "float32", [1, 7]),
        ("reshape(x, -1)", "float32", [1, 2, 3, 4, 5, 6]),
        ("reshape(range(4), [2, 2])", "float32", [[0, 1], [2, 3]]),
        ("permute_dims(x, [1, 0])[0]", "float32", [1, 4]),
        ("flip(y)", "float32", [3, 2, 1]),
        ("flip(x, axis=0)[0]", "float32", [4, 5, 6]),
        ("roll(y, 1)", "float32", [3, 1, 2]),
        ("roll(x, 1, axis=0)[0]", "float32", [4, 5, 6]),
        ("astype(y, int64)", "int64", [1, 2, 3]),
        ("astype(i, uint8)", "uint8", [1, 2, 44]),
        ("astype(-y / 2, int32)", "int32", [0, -1, -1]),
        ("astype(c, float32)", "float32", [3, 1, 0]),
        ("x[1, 2]", "float32", 6),
        ("x[-1][0]", "float32", 4),
        ("x[:, 1:]", "float32", [[2, 3], [5, 6]]),
        ("x[0, ::2]", "float32", [1, 3]),
        ("y[None, :]", "float32", [[1, 2, 3]]),
        ("y[i[0]]", "float32", 2),
        ("y[[2, 0]]", "float32", [3, 1]),
        ("y[y > 1]", "float32", [2, 3]),
        ("shape(x)", None, [2, 3]),
        ("numel(x) + len(x)", None, 8),
        ("int(y[2]) + float(y[0])", None, 4.0),
        ("bool(y[0] - 1)", None, False),
    ],
)
def test_an_expression_has_this_value(text: str, dtype: str | None, values: object) -> None:
    found = value_of(text)
    if dtype is None:
        assert not ARRAYS.is_array(found)
        assert found == values
    else:
        assert isinstance(found, np.ndarray)
        assert ARRAYS.dtype(found) == dtype
        assert found.astype(np.complex128).tolist() == np.asarray(values, np.complex128).tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none + 1", "has no value on this rank"),
        ("exp(none)", "has no value on this rank"),
        ("none[0]", "has no parts"),
        ("x + xs[0]", r"shapes \[2, 3\] and \[2\] do not fit"),
        ("x + xs", "stack"),
        ("exp(xs)", "stack"),
        ("u + 300", "300 does not fit uint8"),
        ("full(2, 300, dtype=int8)", "300 does not fit int8"),
        ("full(2, 1.5, dtype=int8)", "1.5 does not fit int8"),
        ("full(2, 1j, dtype=float64)", "complex"),
        ("full(rank / 2, 1)", "`//` divides integers"),
        ("full(-1, 1)", "negative"),
        ("full(2, y)", "one number"),
        ("arange(300, dtype=int8)", "does not fit int8"),
        ("arange(0, 1, 0)", "zero"),
        ("random(3, -1)", "seed"),
        ("random(3, 1, dtype=int64)", "floats"),
        ("y[::-1]", r"flip\(x\)"),
        ("y[3]", "out of bounds"),
        ("y[0.5]", "index is an integer"),
        ("y[y]", "index is an integer or a mask"),
        ("y[True]", "index is an integer"),
        ("i // 0", "division by zero"),
        ("i % (i - i)", "division by zero"),
        ("i ** -1", "negative powers"),
        ("u << 8", "0 to 7 bits"),
        ("k - k", "bools differ"),
        ("-k", "~"),
        ("~y", "integers"),
        ("y & 1", "integers"),
        ("c < c", "no order"),
        ("max(c)", "no order"),
        ("c // 2", "complex"),
        ("max(y, 0)", "maximum"),
        ("min([])", "empty"),
        ("sum(xs, axis=0)", "stack"),
        ("x @ x", "no product"),
        ("reshape(y, [2, 2])", "3 elements do not fill"),
        ("concat([])", "at least one"),
        ("int(y)", r"shape \[3\]"),
        ("astype(y, which)", "float32"),
        ("len(3)", "no length"),
        ("[j for j in 3]", "no items"),
        ("y in 3", "list or a tensor"),
    ],
)
def test_what_has_no_value_says_why(text: str, said: str) -> None:
    with pytest.raises((ValueError, TypeError, ArithmeticError, IndexError), match=said):
        value_of(text, which="float33")


def test_random_numbers_are_those_of_pcg64() -> None:
    wanted = np.random.default_rng(7).random((2, 3), dtype=np.float32)
    assert np.array_equal(value_of("random([2, 3], 7)"), wanted)
    assert ARRAYS.dtype(value_of("random(3, 1, dtype=bfloat16)")) == "bfloat16"


def test_a_float_sum_is_rounded_once() -> None:
    parts = [ARRAYS.array([value], "float32") for value in (2**24, 1.0, 1.0)]
    assert value_of("sum(parts)", parts=parts).item() == 2**24 + 2
    halves = [ARRAYS.array([value], "bfloat16") for value in (256.0, 1.0, 1.0)]
    assert value_of("sum(parts)", parts=halves).item() == 258


@pytest.mark.parametrize(
    "text",
    ["x[0]", "x[0, 1]", "x[:, 0]", "x[0:1]", "reshape(x, -1)", "permute_dims(x, [1, 0])", "[x][0]"],
)
def test_a_view_shares_the_memory(text: str) -> None:
    x = held()["x"]
    view = value_of(text, x=x)
    assert isinstance(view, np.ndarray)
    view[...] = 9
    assert (x == 9).any()


@pytest.mark.parametrize(
    "text",
    [
        "+x",
        "flip(x)",
        "roll(x, 0)",
        "astype(x, float32)",
        "abs(x)",
        "sum([x])",
        "max([x])",
        "concat([x])",
        "minimum(x, x)",
        "where(True, x, x)",
        "x[[0, 1]]",
        "x ** 1",
    ],
)
def test_a_function_copies(text: str) -> None:
    x = held()["x"]
    value_of(text, x=x)[...] = 9
    assert not (x == 9).any()


def test_a_transposed_tensor_is_not_contiguous() -> None:
    assert not value_of("permute_dims(x, [1, 0])").flags.c_contiguous
    copied = ARRAYS.copy(value_of("permute_dims(x, [1, 0])"))
    assert copied.flags.f_contiguous
    assert not copied.flags.c_contiguous


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_made_and_computed_with(dtype: str) -> None:
    made = ARRAYS.array([[0, 1], [1, 0]], dtype)
    assert ARRAYS.dtype(made) == dtype
    assert ARRAYS.dtype(value_of("x[0] | x[1]" if dtype == "bool" else "x + 1", x=made)) == dtype
    assert ARRAYS.dtype(value_of("concat([x, x])", x=made)) == dtype
    assert ARRAYS.dtype(value_of("sum([x, x])", x=made)) == dtype


@pytest.mark.parametrize(
    ("data", "dtype", "said"),
    [
        ([[1, 2], [3]], "float32", "differ in length"),
        ([1, [2]], "float32", "differ in length"),
        ([256], "uint8", "256 does not fit uint8.*from 0 to 255"),
        ([-1], "uint64", "-1 does not fit uint64"),
        ([2**70], "int64", "does not fit int64"),
        ([2**63, -1], "int64", "does not fit int64"),
        ([1.5], "int32", "1.5 does not fit int32"),
        ([float("nan")], "int32", "nan does not fit int32"),
        ([1j], "float32", "complex"),
        (["a"], "float32", "text"),
        ([None, 1], "float32", "no value"),
        ([1], "float33", "did you mean float32"),
    ],
)
def test_data_that_does_not_fit_is_refused(data: object, dtype: str, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        ARRAYS.array(data, dtype)


@pytest.mark.parametrize(
    ("data", "dtype", "wanted"),
    [
        (3, "float32", 3),
        ([1.0, 2], "int64", [1, 2]),
        ([2**63], "uint64", [2**63]),
        ([2**64, -(2**64)], "float64", [2.0**64, -(2.0**64)]),
        ([1e30], "float16", [np.inf]),
        ([1 + 2j, 3], "complex64", [1 + 2j, 3]),
        ([], "int64", []),
        ([[], []], "float32", [[], []]),
        ([2, 0], "bool", [True, False]),
        (range(3), "int8", [0, 1, 2]),
    ],
)
def test_data_becomes_an_array(data: object, dtype: str, wanted: object) -> None:
    made = ARRAYS.array(data, dtype)
    assert ARRAYS.dtype(made) == dtype
    assert made.tolist() == wanted


def test_an_array_from_an_array_is_a_copy() -> None:
    x = held()["x"]
    made = ARRAYS.array(x, "float32")
    made[...] = 9
    assert not (x == 9).any()


def test_a_single_element_fills_a_shape() -> None:
    made = ARRAYS.reshape(ARRAYS.array(3, "int64"), (2, 2))
    assert made.tolist() == [[3, 3], [3, 3]]
    made[0, 0] = 1
    assert made.tolist() == [[1, 3], [3, 3]]
    assert ARRAYS.reshape(ARRAYS.array([3], "int64"), (0,)).shape == (0,)
    assert ARRAYS.reshape(ARRAYS.array([1, 2, 3, 4], "int64"), (2, 2)).tolist() == [[1, 2], [3, 4]]


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="3 elements do not fill the shape"):
        ARRAYS.reshape(ARRAYS.array([1, 2, 3], "int64"), (2, 2))
    with pytest.raises(ValueError, match="--limit elements=N"):
        ARRAYS.reshape(ARRAYS.array(3, "int64"), (10**6, 10**6))
    with pytest.raises(ValueError, match="--limit elements=N"):
        NumpyArrays(Limits(max_elements=3)).array([1, 2, 3, 4], "float32")


def test_every_function_is_in_the_table() -> None:
    elsewhere = {"group_rank", "group_size", "group_ranks", "before"} | {"node_rank", "local_rank"}
    made = {key.removesuffix("()") for key in ARRAYS.functions() if key.endswith("()")}
    assert made == FUNCTION_NAMES - elsewhere


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("bit_length(0)", 0),
        ("bit_length(8)", 4),
        ("bit_count(11)", 3),
        ("floor(-2.5)", -3),
        ("ceil(2.5)", 3),
        ("round(2.5)", 2),
        ("floor(7)", 7),
        ("sign(-3)", -1),
        ("square(3)", 9),
        ("log2(8)", 3.0),
        ("isnan(0.5)", False),
        ("any([0, 0, 2])", True),
        ("all([])", True),
        ("argmax([3, 7, 7])", 1),
        ("argmin([3, 1, 1])", 1),
    ],
)
def test_functions_of_numbers_give_numbers(text: str, wanted: float) -> None:
    scope = {**ARRAYS.functions(), "__builtins__": {}}
    found = compile_expression(text, None).evaluate(scope)
    assert (found, found.__class__) == (wanted, wanted.__class__)


@pytest.mark.parametrize(
    "text", ["bit_length(0.5)", "square(x > 1)", "floor(1j)", "argmax(zeros(0))", "sign(x > 1)"]
)
def test_functions_refuse_what_has_no_such_value(text: str) -> None:
    scope = {**ARRAYS.functions(), "__builtins__": {}, "x": ARRAYS.array([1, 2], "float32")}
    with pytest.raises((TypeError, ValueError)):
        compile_expression(text, None).evaluate(scope)


def test_functions_are_one_table_that_no_rank_copies() -> None:
    assert ARRAYS.functions() is ARRAYS.functions()


def test_bfloat16_is_that_of_ml_dtypes() -> None:
    assert ARRAYS.array([1], "bfloat16").dtype == ml_dtypes.bfloat16


def test_a_complex_tensor_is_not_made_real_without_a_word() -> None:
    with pytest.raises(ValueError, match="a complex number does not fit float32"):
        ARRAYS.array(value_of("ones(2) * 1j"), "float32")


def test_every_function_has_an_example() -> None:
    assert list(EXAMPLES) == [name for name in EXAMPLES if name in FUNCTION_NAMES]
    assert set(EXAMPLES) == FUNCTION_NAMES
    assert [name for name, (text, _) in EXAMPLES.items() if f"{name}(" not in text] == []


def test_examples_of_functions_have_the_values_that_they_show(tmp_path: Path) -> None:
    placements = {"Shard", "Replicate", "Partial"}
    shown = {name: each for name, each in EXAMPLES.items() if name not in placements}
    steps = "".join(
        f'  - {{compute: {{of_{name}: "x"}}, expect: {{"{text}": {{2: {value}}}}}}}\n'
        for name, (text, value) in shown.items()
    )
    file = tmp_path / "shown.yaml"
    file.write_text(f"{EXAMPLE_NAMES}steps:\n{steps}", encoding="utf-8")
    (case,) = torch_scenarios.load(file)
    verdict = torch_scenarios.judge(case, torch_scenarios.simulate(torch_scenarios.plan(case)))
    assert [each.prose for each in verdict.findings] == []
    wrong = file.read_text(encoding="utf-8").replace("{2: -6}", "{2: -7}")
    file.write_text(wrong, encoding="utf-8")
    (case,) = torch_scenarios.load(file)
    assert (
        torch_scenarios.judge(case, torch_scenarios.simulate(torch_scenarios.plan(case))).status
        == "FAILED"
    )
