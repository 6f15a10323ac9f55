"""Compiling expressions: what is read, what is shared, where faults are shown."""

from __future__ import annotations

import ast
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.errors import Mark, Problem, ScenarioError, Source
from torch_scenarios.expressions.compile import (
    ATTRIBUTE_HINTS,
    PYTHON_FUNCTION_HINTS,
    compile_expression,
)
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.limits import Limits

if TYPE_CHECKING:
    from torch_scenarios.expressions.values import Expression

GROUPS = ("even", "mesh.dp", "mesh.tp")


def scope(**variables: Any) -> dict[str, Any]:
    functions = NumpyArrays().functions()
    return {**functions, "__builtins__": {}, "rank": 1, "world_size": 4, **variables}


def value_of(text: str, **variables: Any) -> Any:
    return compile_expression(text, None, groups=GROUPS).evaluate(scope(**variables))


def compiled(text: str) -> Expression:
    return compile_expression(text, None, groups=GROUPS)


def refused(text: str, line: str | None = None, column: int = 4) -> Problem:
    """Return the first problem of a text written as `x: "text"` on a line of its own."""
    line = f'x: "{text}"' if line is None else line
    source = Source(path="a.yaml", text=line)
    mark = Mark(source=source, line=1, column=column, end_line=1, end_column=len(line) + 1)
    with pytest.raises(ScenarioError) as caught:
        compile_expression(text, mark, groups=GROUPS)
    return caught.value.problems[0]


def under_caret(problem: Problem) -> str:
    excerpt = problem.excerpt()
    assert excerpt is not None
    line, carets = excerpt
    return line[carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(rank + 1) % world_size", 2),
        ("2 ** 10 - 1", 1023),
        ("7 // 2 + 7 % 2", 4),
        ("-3 + +2", -1),
        ("~5 & 0xff", 250),
        ("1 << 4 | 3", 19),
        ("6 ^ 3", 5),
        ("1e-5", 1e-5),
        ("1e999", float("inf")),
        ("1j * 1j", -1),
        ("rank == 1 and not rank > 1", True),
        ("0 <= rank < world_size", True),
        ("rank in [0, 3]", False),
        ("rank not in (0, 3)", True),
        ("10 if rank % 2 else 20", 10),
        ("[i * 2 for i in range(4) if i != 1]", [0, 4, 6]),
        ("[a + b for a, b in [[1, 2], [3, 4]]]", [3, 7]),
        ("[i * j for i in range(3) for j in range(i)]", [0, 0, 2]),
        ("[rank for rank in range(3)]", [0, 1, 2]),
        ("range(6)[1:5:2]", range(1, 5, 2)),
        ("range(4)[::-1]", range(3, -1, -1)),
        ("[[1, 2], [3]][0][-1]", 2),
        ("[1] + [2] * 3", [1, 2, 2, 2]),
        ("[10, 20][rank > 0]", 20),
        ("None is None", True),
        ("width if width is not None else 0", 5),
        ("min(3, 1, 2) + max([4, 5])", 6),
        ("sum([1, 2, 3]) + prod([2, 3])", 12),
        ("len([1, 2]) + numel(7) + len(range(3))", 6),
        ("int(2.9) + int(float(3)) + int(bool(2))", 6),
        ("True and\n  False", False),
        ("  rank", 1),
    ],
)
def test_numbers_and_lists_are_computed_as_python_does(text: str, wanted: object) -> None:
    assert value_of(text, width=5) == wanted


def test_a_tensor_may_have_the_name_of_a_function() -> None:
    assert value_of("sum([sum, 1])", sum=4) == 5
    assert compiled("sum([sum, 1])").names == {"sum"}


def test_a_dtype_is_a_name_even_where_bool_is_a_function() -> None:
    assert compiled("astype(x, bool)").names == {"x"}
    assert compiled("bool(x)").calls == {"bool"}


def test_a_dotted_group_is_one_name() -> None:
    expression = compiled("rank in mesh.dp")
    assert expression.names == {"rank", "mesh.dp"}
    assert expression.evaluate(scope(**{"mesh.dp": [1, 3]})) is True


def test_a_group_function_gets_the_name_of_the_group() -> None:
    asked: list[str] = []

    def answer(name: str) -> int:
        asked.append(name)
        return 0

    names = {"group_rank()": answer, "group_size()": answer}
    value_of("group_rank(even) + group_size(mesh.tp) + group_size(world)", **names)
    assert asked == ["even", "mesh.tp", "world"]
    assert compiled("group_rank(even)").names == frozenset()


def test_a_parameter_may_hold_the_name_of_a_group() -> None:
    assert compiled("group_rank(which)").names == {"which"}
    names = {"group_rank()": lambda name: name, "which": "even"}
    assert value_of("group_rank(which)", **names) == "even"


def test_before_gets_the_name_of_the_tensor() -> None:
    expression = compiled("sum([before(x, r) for r in group_ranks(even)])")
    assert expression.before == {"x"}
    assert expression.names == frozenset()
    assert expression.calls == {"sum", "before", "group_ranks"}
    held = {"before()": lambda name, rank: (name, rank)[1], "group_ranks()": lambda _: [0, 2]}
    assert expression.evaluate(scope(**held)) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x + y * rank", {"x", "y", "rank"}),
        ("[x for x in y]", {"y"}),
        ("[x for x in x]", {"x"}),
        ("[i + z for i in range(n)]", {"z", "n"}),
        ("[i for i in range(3)] + [i]", {"i"}),
        ("astype(x, float16)", {"x"}),
    ],
)
def test_names_are_the_free_variables(text: str, names: set[str]) -> None:
    assert compiled(text).names == names


@pytest.mark.parametrize(
    ("text", "roots"),
    [
        ("x", {"x"}),
        ("x[0:2]", {"x"}),
        ("x[:, 0]", {"x"}),
        ("xs[1][0]", {"xs"}),
        ("[x, y[0:1]]", {"x", "y"}),
        ("[x[i:i + 1] for i in range(2)]", {"x"}),
        ("[t[0:1] for t in xs]", {"xs"}),
        ("x if rank else y", {"x", "y"}),
        ("x and y", {"x", "y"}),
        ("reshape(x, [2, 2])", {"x"}),
        ("permute_dims(x[0:2], [1, 0])", {"x"}),
        ("x + 1", set()),
        ("+x", set()),
        ("flip(x)", set()),
        ("astype(x, float32)", set()),
        ("[full(2, i) for i in range(2)]", set()),
        ("rank", set()),
        ("x[[0, 2]]", set()),
        ("x[x > 1]", set()),
        ("x[[i for i in range(2)]]", set()),
        ("before(x, 0)", set()),
    ],
)
def test_roots_are_the_names_whose_storage_may_be_shared(text: str, roots: set[str]) -> None:
    assert compiled(text).roots == roots


def test_an_expression_survives_pickling() -> None:
    expression = compiled("[x + i for i in range(2)]")
    again = pickle.loads(pickle.dumps(expression))  # noqa: S301 -- pickled on the line itself
    assert again == expression
    assert again.evaluate(scope(x=3)) == [3, 4]


@pytest.mark.parametrize(
    ("text", "code", "shown", "hint"),
    [
        (
            "x.sum()",
            "expression_not_allowed",
            "x.sum",
            "functions are called by their names alone: sum(x",
        ),
        ("x.T", "expression_not_allowed", "x.T", "matrix_transpose"),
        ("rank in mesh.dq", "expression_not_allowed", "mesh.dq", "`mesh.dp`"),
        ("1 + fulll(3, 1)", "unknown_function", "fulll", "`full`"),
        ("torch(3)", "unknown_function", "torch", None),
        ("cat([x, x])", "unknown_function", "cat", "concat"),
        ("full(3)", "wrong_arguments", "full(3)", "full(shape, fill_value"),
        ("exp(1, 2)", "wrong_arguments", "exp(1, 2)", "exp(x)"),
        ("sum(x, dim=1)", "wrong_arguments", "dim=1", "sum(x, axis"),
        ("sum(x, axes=1)", "wrong_arguments", "axes=1", "`axis`"),
        ("full(3, 1, shape=2)", "wrong_arguments", "full(3, 1, shape=2)", None),
        ("before(x[0], 1)", "wrong_arguments", "x[0]", "before(x, r)[0]"),
        ("group_rank([0, 1])", "wrong_arguments", "[0, 1]", "world"),
        ("astype(x, 'int64')", "expression_not_allowed", "'int64'", "without quotes: int64"),
        ("x = 3", "expression_syntax", "=", "`==`"),
        ("rank && x", "expression_syntax", "&", "`and`"),
        ("rank +", "expression_syntax", "+", None),
        ("(rank", "expression_syntax", "(", None),
        ("rank # note", "expression_syntax", "#", None),
        ("{0: 1}", "expression_not_allowed", "{0: 1}", "YAML mapping"),
        ("sum(x for x in y)", "expression_not_allowed", "(x for x in y)", "brackets"),
        ("x is 3", "expression_not_allowed", "x is 3", "`==`"),
        ("x[...]", "expression_not_allowed", "...", None),
        ("[int64 for int64 in x]", "expression_not_allowed", "int64", None),
    ],
)
def test_a_fault_is_shown_at_its_place(text: str, code: str, shown: str, hint: str | None) -> None:
    problem = refused(text)
    assert problem.code == code
    assert under_caret(problem) == shown
    assert hint is None or hint in str(problem.hint)


def test_a_place_counts_characters_not_bytes() -> None:
    assert under_caret(refused("é + ö.shape")) == "ö.shape"


def test_a_plain_scalar_shows_the_place_as_well() -> None:
    assert under_caret(refused("1 + x.shape", "x: 1 + x.shape")) == "x.shape"


def test_a_scalar_that_is_not_on_one_line_is_shown_as_a_whole() -> None:
    problem = refused("1 + x.shape", "x: >", 4)
    assert problem.mark is not None
    assert problem.mark.column == 4


def test_every_fault_of_one_expression_is_reported() -> None:
    with pytest.raises(ScenarioError) as caught:
        compile_expression("fulll(3) + x.T + {1}", None)
    assert [problem.code for problem in caught.value.problems] == [
        "unknown_function",
        "expression_not_allowed",
        "expression_not_allowed",
    ]


def test_an_empty_text_is_no_expression() -> None:
    assert refused("  ").code == "expression_syntax"


def test_a_limit_names_its_flag() -> None:
    limits = Limits(max_expression_chars=10)
    with pytest.raises(ScenarioError, match="--limit expression-chars=N"):
        compile_expression("1 + 1 + 1 + 1", None, limits=limits)
    assert compile_expression("1 + 1 + 1", None, limits=limits).evaluate(scope()) == 3


def test_elements_are_bounded_by_the_limits_of_the_compilation() -> None:
    arrays = NumpyArrays()
    small = compile_expression("full(11, 1)", None, limits=Limits(max_elements=10))
    with pytest.raises(ValueError, match="--limit elements=N"):
        small.evaluate({**arrays.functions(), "__builtins__": {}})
    large = compile_expression("full(11, 1)", None)
    assert large.evaluate({**arrays.functions(), "__builtins__": {}}).shape == (11,)


@pytest.mark.parametrize(
    "hint", sorted({*PYTHON_FUNCTION_HINTS.values(), *ATTRIBUTE_HINTS.values()})
)
def test_what_a_hint_says_to_write_can_be_written(hint: str) -> None:
    try:
        ast.parse(hint, mode="eval")
    except SyntaxError:
        return  # a sentence, no expression
    assert compile_expression(hint, None, groups=("g",)).text == hint
