"""An expression can neither escape nor take unbounded time or memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sampling import sampled

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.expressions.signatures import FUNCTION_NAMES
from torch_scenarios.expressions.values import Expression
from torch_scenarios.limits import Limits
from torch_scenarios.vocabulary import DTYPES

ESCAPES = [
    "__import__(1)",
    "__builtins__",
    "[__builtins__ for i in range(1)]",
    "x.__class__",
    "().__class__.__bases__",
    "(1).__class__",
    "[].append(1)",
    "x.__class__.__mro__[1].__subclasses__()",
    "sum.__globals__",
    "full.__self__",
    "exp.__call__(1)",
    "getattr(x, y)",
    "eval(1)",
    "exec(1)",
    "open(1)",
    "compile(1)",
    "globals()",
    "vars(x)",
    "type(x)",
    "print(1)",
    "lambda: 1",
    "(lambda x: x)(1)",
    "(y := 1)",
    "[y := 1]",
    "[i for i in range(3) if (j := i)]",
    "f'{x}'",
    "f'{x.__class__}'",
    "'a' * 10",
    "b'a'",
    "'%1000000000d' % 1",
    "[*x]",
    "sum(*x)",
    "full(*[1, 2])",
    "full(**x)",
    "{**x}",
    "{i for i in x}",
    "{i: i for i in x}",
    "(i for i in x)",
    "[i async for i in x]",
    "await x",
    "(yield)",
    "(yield from x)",
    "[x.y for x.y in z]",
    "[1 for x[0] in z]",
    "[1 for __builtins__ in z]",
    "[1 for sum in z]",
    "[1 for *a in z]",
    "[1 for (a, (b, c)) in z]",
    "[f for f in [full]][0](3, 1)",
    "[sum][0](x)",
    "(sum if 1 else max)(x)",
    "x()()",
    "x[0](1)",
    "import os",
    "x; y",
    "del x",
    "x if y",
    "1 +",
    "\x00",
    "x\\\ny.z",
    "mesh.dp.__class__",
    "before(x.y, 1)",
    "group_rank(mesh.dp.x)",
    "`x`",
    "$x",
    "${x}",
    "{{ x }}",
    "10" * 1000 + "0",
    "0x" + "f" * 300,
    "(" * 100 + ")" * 100,
    "[" * 100 + "]" * 100,
    "-" * 3000 + "1",
    "not " * 900 + "x",
    "1" + "+1" * 1500,
    "x" + "[0]" * 600,
    "1 if x else " * 300 + "1",
    "sum(" * 70 + "x" + ")" * 70,
]


@pytest.mark.parametrize("text", ESCAPES)
def test_an_escape_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        compile_expression(text, None, groups=("mesh.dp",))
    assert all(problem.code and problem.message for problem in caught.value.problems)


#: a list of 2**33 numbers, in which one list of 2**16 stands 2**17 times
SHARED = "[[z for i in range(2 ** 17)] for z in [[0] * 2 ** 16]]"

BOMBS = [
    "9 ** 9 ** 9",
    "9 ** 9999",
    "(-9) ** 9999",
    "(9 ** 99) ** 99",
    "2 ** (2 ** 1000)",
    "1 << 10 ** 9",
    "1 << (1 << 20)",
    "[0] * 10 ** 9",
    "10 ** 9 * [0]",
    "[[0] * 100000] * 100000",
    "[[[0] * 1000] * 1000] * 1000",
    "range(10 ** 12)",
    "[i for i in range(10 ** 7)]",
    "[[1 for i in range(10 ** 5)] for j in range(10 ** 5)]",
    "[1 for i in range(1000) for j in range(1000)]",
    "[z for y in [[0] * 100000] for i in range(1000) for z in y]",
    "sum(range(10 ** 9))",
    "prod([2 ** 1000 for i in range(200000)])",
    "prod(range(1, 100000))",
    "max(range(10 ** 10))",
    f"{SHARED} == {SHARED}",
    "full(10 ** 10, 1)",
    "full([100000, 100000], 1)",
    "zeros([2 ** 40, 2 ** 40])",
    "ones([0, 2 ** 70, 2 ** 70])[0]",
    "arange(10 ** 10)",
    "arange(0, 1, 1e-12)",
    "arange(0, 1, 5e-324)",
    "linspace(0, 1, 10 ** 10)",
    "eye(100000)",
    "random(10 ** 10, 0)",
    "w[:, None] + w[None, :]",
    "w[:, None] == w[None, :]",
    "w[:, None] in [w[None, :]]",
    "where(w[:, None] > 0, w[None, :], w)",
    "maximum(w[:, None], w[None, :])",
    "matmul(w[:, None], w[None, :])",
    "stack([w for i in range(100000)])",
    "concat([w for i in range(100000)])",
    "matmul(full([4096, 16384], 1), full([16384, 16384], 1))",
    "w[[0] * 200000][:, None] * w[None, :]",
    "v[[0 for i in range(200000)]]",
    f"[{' + '.join(['i'] * 200)} for i in range(200000)]",
    "[max(w) for i in range(200000)]",
    "[mean(w) for i in range(200000)]",
    "[+w for i in range(200000)]",
    "[matmul(w, w) for i in range(200000)]",
    "[i in z for z in [[0] * 100000] for i in range(1, 100000)]",
    "[sum(z) for z in [[0] * 100000] for i in range(100000)]",
    "[min(z) for z in [[0] * 100000] for i in range(100000)]",
    "[numel(z) for z in [[0] * 100000] for i in range(100000)]",
    "text * 10 ** 9",
    "text % 5",
    "text + text",
    f"exp({SHARED})",
    "int(1e999)",
    "1 // 0",
    "rank % 0",
]


@pytest.mark.parametrize("text", sampled(BOMBS, 4))
def test_a_bomb_raises_an_ordinary_error(text: str) -> None:
    arrays = NumpyArrays()
    scope = {
        **arrays.functions(),
        "__builtins__": {},
        "rank": 1,
        "w": arrays.array([0] * 20000, "float32"),
        "v": arrays.array([[0] * 1000], "float32"),
        "text": "%1000000000d",
    }
    with pytest.raises((ArithmeticError, ValueError, TypeError, IndexError)):
        compile_expression(text, None).evaluate(scope)


def test_all_the_tensors_of_an_expression_are_bounded_together() -> None:
    scope = {**NumpyArrays().functions(), "__builtins__": {}}
    limits = Limits(max_elements=1000)
    few = compile_expression("[full(1000, 1) for i in range(4)]", None, limits=limits)
    assert len(few.evaluate(scope)) == 4
    assert len(few.evaluate(scope)) == 4
    many = compile_expression("[full(1000, 1) for i in range(5)]", None, limits=limits)
    with pytest.raises(ValueError, match="--limit elements=N"):
        many.evaluate(scope)


WORDS = st.sampled_from(
    [
        *sorted(FUNCTION_NAMES),
        *DTYPES,
        *("x", "y", "rank", "world_size", "even", "mesh.dp", "__builtins__", "None", "True"),
        *("for i in", "if", "else", "lambda", "and", "not", "in", "is", "is not", ":=", "async"),
        *"()[]{},:.+-*/%&|^~<>=!@#'\"\\\n",
        *("**", "//", "<<", ">>", "==", "!=", "<=", "...", "1", "2.5", "1j", "1e999", "'a'", "é"),
    ]
)


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
@example("1_000")
@example("1if 1else 2")
@example("[][[]]")
@example("0777")
@example("\u212a")
@settings(max_examples=200, deadline=None)
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        expression = compile_expression(text, None, groups=("even", "mesh.dp"))
    except ScenarioError as error:
        complaints = error.problems
        assert complaints
    else:
        assert isinstance(expression, Expression)


NUMBERS = st.integers(-3, 3).map(str) | st.sampled_from(["rank", "2.5", "True", "x", "b", "i"])
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(
            inner,
            st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<", "==", "&", "<<"]),
            inner,
        ).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(inner, inner).map(lambda parts: f"[{', '.join(parts)}]"),
        st.tuples(st.sampled_from(["sum", "max", "exp", "abs", "len", "shape"]), inner).map(
            lambda parts: f"{parts[0]}({parts[1]})"
        ),
        st.tuples(inner, inner).map(lambda parts: f"{parts[0]}[{parts[1]}]"),
        inner.map(lambda part: f"[{part} for j in range(2)]"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
@settings(max_examples=150, deadline=None)
def test_whatever_compiles_computes_or_raises_what_a_process_wraps(text: str) -> None:
    try:
        expression = compile_expression(text, None)
    except ScenarioError:
        return
    arrays = NumpyArrays()
    scope: dict[str, Any] = {**arrays.functions(), "__builtins__": {}, "rank": 1}
    scope |= {name: arrays.array([1, 2], dtype) for name, dtype in PAIRS.items()}
    try:
        expression.evaluate(scope)
    except (ArithmeticError, ValueError, TypeError, LookupError) as error:
        said = str(error)
        assert said


PAIRS = {"x": "float32", "b": "bool", "i": "int8"}
