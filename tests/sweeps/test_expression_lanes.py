"""An expression computed for many ranks at once is, to the bit, what it is rank by rank.

Values, dtypes, types, strides and errors are compared, of every expression of the corpus, of random
programs and of random expressions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from random_programs import programs
from sampling import strides
from spmd_programs import spmd_programs

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.lanes import (
    EXACT,
    Diverge,
    Lanes,
    MixedRows,
    Stack,
    join_parts,
    lift_functions,
    split,
    take_row,
    together,
)
from torch_scenarios.expressions.values import Expression
from torch_scenarios.language import discover
from torch_scenarios.model.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hypothesis.strategies import DrawFn
    from numpy.typing import NDArray

    from torch_scenarios.model.scenario import Scenario

CORPUS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())

COUNT = int(os.environ.get("RANDOM_PROGRAMS", "20"))
BOUNDED = settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=COUNT <= 100,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

FUNCTIONS = numpy_arrays().functions()
LANED = lift_functions(FUNCTIONS, 2**24)
GROUP_CALLS = ("group_rank()", "group_size()", "group_ranks()")


def bits(value: Any) -> Any:
    """Return what tells a value from any other."""
    if isinstance(value, np.ndarray | np.generic):
        kept = np.array(value, order="K")
        return "tensor", value.shape, str(value.dtype), kept.strides, kept.tobytes()
    if isinstance(value, list | tuple):
        return value.__class__, [bits(item) for item in value]
    if isinstance(value, float):
        return float, np.float64(value).tobytes()
    return value.__class__, repr(value)


def alone(form: Expression, scope: Mapping[str, Any]) -> Any:
    """Return what one rank gets: a value, or an error with its words."""
    try:
        return bits(form.evaluate({**scope}))
    except CANNOT_COMPUTE as error:
        return type(error), str(error)


def bound(form: Expression, scopes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the scope of many ranks at once."""
    scope: dict[str, Any] = {**LANED, "__builtins__": {}}
    for key in GROUP_CALLS:
        scope[key] = lambda name, key=key: together([each[key](name) for each in scopes])
    for name in form.names:
        if all(name in each for each in scopes):
            scope[name] = together([each[name] for each in scopes])
    return scope


def at_once(form: Expression, scopes: Sequence[Mapping[str, Any]]) -> tuple[list[Any], int]:
    """Return what each rank gets, and how many were computed together with another."""
    apart: dict[int, Any] = {}

    def many(rows: NDArray[np.int64] | None) -> Any:
        chosen = scopes if rows is None else [scopes[row] for row in rows]
        return form.evaluate(bound(form, chosen))

    found: list[Any] = [None] * len(scopes)
    for rows, value in split(len(scopes), many, lambda row: apart.setdefault(row, row)):
        here = range(len(scopes)) if rows is None else rows.tolist()
        for place, row in enumerate(here):
            single = len(here) == 1
            found[row] = alone(form, scopes[row]) if single else bits(take_row(value, place))
    return found, len(scopes) - len(apart)


def agree(form: Expression, scopes: Sequence[Mapping[str, Any]]) -> bool:
    """Compare; return whether any ranks were computed together."""
    found, together_ = at_once(form, scopes)
    for rank, (mine, scope) in enumerate(zip(found, scopes, strict=True)):
        assert mine == alone(form, scope), (form.text, rank)
    return together_ > 0


def expressions(part: Any) -> Iterator[Expression]:
    """Yield every expression in a scenario."""
    if isinstance(part, Expression):
        yield part
    elif isinstance(part, Struct):
        for name in part.__struct_fields__:
            yield from expressions(getattr(part, name))
    elif isinstance(part, dict):
        for item in part.values():
            yield from expressions(item)
    elif isinstance(part, list | tuple):
        for item in part:
            yield from expressions(item)


def loop_variables(scenario: Scenario) -> set[str]:
    found: set[str] = set()
    waiting = [*scenario.steps]
    while waiting:
        step = waiting.pop()
        waiting += step.body
        found |= {step.variable} if step.variable else set()
    return found


def scopes_of(scenario: Scenario) -> Iterator[list[dict[str, Any]]]:
    """Yield the names of every rank: before step 1, then with what each name last held."""
    plan = torch_scenarios.plan(scenario)
    ranks = [Process(plan, rank, numpy_arrays()) for rank in range(plan.world_size)]
    trace = torch_scenarios.simulate(plan)
    for turn in (0, 1, 3):
        variables = dict.fromkeys(loop_variables(scenario), turn)
        if turn == 1:
            for process, rank in zip(ranks, trace.ranks, strict=True):
                for event in rank.events:
                    process.scope.update(
                        {
                            name: value
                            for name, value in event.writes.items()
                            if isinstance(value, np.ndarray)
                        }
                    )
        yield [{**process.scope, **variables} for process in ranks]


def compared(scenario: Scenario) -> tuple[int, int]:
    """Compare every expression of a scenario; return how many there are, how many together."""
    forms = {form.text: form for form in expressions(scenario)}
    done = [agree(form, scopes) for scopes in scopes_of(scenario) for form in forms.values()]
    return len(done), sum(done)


@pytest.mark.parametrize("stride", strides(15))
@pytest.mark.parametrize("name", FOLDERS)
def test_the_expressions_of_the_corpus(name: str, stride: int) -> None:
    compared_, at_once_ = 0, 0
    for path in list(discover([str(CORPUS / name)]))[::stride]:
        for scenario in torch_scenarios.load(path):
            try:
                counts = compared(scenario)
            except ScenarioError:
                continue  # an initial value that cannot be computed
            compared_, at_once_ = compared_ + counts[0], at_once_ + counts[1]
    assert 5 * at_once_ >= 2 * compared_


@pytest.mark.parametrize("strategy", [spmd_programs(wrong=False), programs(wrong=False)])
def test_the_expressions_of_random_programs(strategy: Any, tmp_path: Path) -> None:
    @given(text=strategy)
    @BOUNDED
    def run(text: str) -> None:
        path = tmp_path / "program.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            (scenario,) = torch_scenarios.load(path)
            compared(scenario)
        except ScenarioError:
            return  # a value that cannot be computed

    run()


# ---------------------------------------------------------------------- random expressions

NUMBERS = (
    "rank",
    "world_size",
    "i",
    "0",
    "1",
    "2",
    "-1",
    "3",
    "0.5",
    "True",
    "big",
    "f",
    "x[rank]",
)
TENSORS = (
    "x",
    "k",
    "flags",
    "h",
    "z",
    "m",
    "c",
    "x[0:2]",
    "x[rank % 2 : rank % 2 + 2]",
    "[1, 2, 3, 4]",
)
LISTS = ("g", "[rank, 1]", "range(3)", "range(rank)", "[x[0], rank]", "shape(m)", "[x, x + 1]")
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
OF_ONE = (
    "-{}", "+{}", "~{}", "not {}", "abs({})", "int({})", "float({})", "bool({})", "sqrt({})",
    "exp({})", "sum({})", "prod({})", "min({})", "max({})", "mean({})", "len({})", "shape({})",
    "numel({})", "flip({})", "astype({}, int32)", "astype({}, float16)", "astype({}, uint8)",
    "reshape({}, -1)", "permute_dims(m, [1, 0]) + {}", "{} is None", "{}[0]", "{}[-1]",
    "{}[rank]", "{}[rank % 2 : 3]", "{}[:, rank % 2]", "{}[rank % 2, 0:2]", "{}[flags]",
    "sum({}, axis=0)", "full(2, {})", "full(2, {}, int8)", "zeros({})", "arange({})",
    "group_rank(low) + {}", "[e * 2 for e in {}]", "[e for e in {} if e != rank]", "0 <= {} < 3",
    "range({})", "random(3, {})",
)  # fmt: skip
OF_TWO = (
    "minimum({}, {})", "maximum({}, {})", "min({}, {})", "max({}, {})", "{} in {}",
    "{} not in {}", "concat([{}, {}])", "stack([{}, {}], axis=1)", "where(flags, {}, {})",
    "where({} > 0, {}, 1)", "[{}, {}]", "{} and {}", "{} or {}", "{} if rank < 2 else {}",
    "{} if i else {}", "{}[{}]", "matmul({}, {})", "full({}, {})", "sum([{}, {}])",
    "max([{}, {}])", "roll({}, {})", "reshape({}, [2, {}])", "[a + {} for a in {}]",
)  # fmt: skip


@st.composite
def texts(draw: DrawFn, depth: int = 3) -> str:
    """Draw the text of an expression; many have no value."""
    kind = draw(st.integers(0, 9)) if depth else 0
    if kind <= 2:
        return draw(st.sampled_from(draw(st.sampled_from((NUMBERS, TENSORS, LISTS)))))
    inner = texts(depth=depth - 1)
    if kind <= 5:
        symbol = draw(st.sampled_from((*OPERATORS, *COMPARISONS)))
        return f"({draw(inner)} {symbol} {draw(inner)})"
    if kind <= 7:
        return "(" + draw(st.sampled_from(OF_ONE)).format(draw(inner)) + ")"
    return "(" + draw(st.sampled_from(OF_TWO)).format(draw(inner), draw(inner)) + ")"


def names_of_rank(rank: int, i: int) -> dict[str, Any]:
    """Return what the names of random expressions are on one rank."""
    zeros = np.asarray([0.0, -0.0, np.nan, np.inf], np.float32)
    groups = {"low": [0, 1], "world": [*range(6)]}
    mine = groups["low"] if rank in groups["low"] else []
    return {
        **FUNCTIONS,
        "__builtins__": {},
        "rank": rank,
        "world_size": 6,
        "i": i,
        "f": rank / 3,
        "big": 2**50 + rank,
        "x": np.asarray([rank, 1, -2.5, 3 * rank], np.float32),
        "k": np.asarray([rank, -1, 2, 100], np.int32),
        "flags": np.asarray([rank % 2 == 0, True, False, rank > 3]),
        "h": np.asarray([rank, 0.1, 3, 1], np.float16),
        "z": np.roll(zeros, rank),
        "m": np.arange(4, dtype=np.float64).reshape(2, 2) + rank,
        "c": np.asarray([rank, 1j], np.complex64),
        "g": mine,
        "low": mine,
        "group_rank()": lambda name: groups[name].index(rank) if rank in groups[name] else -1,
        "group_size()": lambda name: len(groups[name]) if rank in groups[name] else 0,
        "group_ranks()": lambda name: groups[name] if rank in groups[name] else [],
    }


@given(text=texts(), i=st.integers(0, 3))
@settings(BOUNDED, max_examples=20 * COUNT)
def test_random_expressions(text: str, i: int) -> None:
    try:
        form = compile_expression(text, None, groups=("low",))
    except ScenarioError:
        return
    agree(form, [names_of_rank(rank, i) for rank in range(6)])


# ---------------------------------------------------------------------- how it goes


def runs_of(text: str, count: int) -> tuple[Any, list[int]]:
    """Return the value of an expression over `rank` alone, and the rows of each run."""
    form, runs = compile_expression(text, None), []

    def many(rows: NDArray[np.int64] | None) -> Any:
        ranks = np.arange(count) if rows is None else rows
        runs.append(len(ranks))
        return form.evaluate({**LANED, "__builtins__": {}, "rank": Lanes(ranks), "x": FIVES})

    def one(row: int) -> Any:
        runs.append(1)
        return form.evaluate({**FUNCTIONS, "__builtins__": {}, "rank": row, "x": FIVES})

    return join_parts(list(split(count, many, one)), count), runs


FIVES = np.full(3, 5.0, np.float32)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("(rank + 3) % 100", [100]),
        ("rank in range(20, 60)", [100]),
        ("rank in [1, 50, 99]", [100]),
        ("[rank + i for i in range(5)][3]", [100]),
        ("rank if rank % 2 == 0 else -rank", [100, 50, 50]),
        ("0 <= rank < 10", [100]),
        ("5 < rank < 10", [100, 6, 94]),
        ("rank == 0 or rank == 7", [100, 99, 1]),
        ("zeros(2 + rank % 3)[0]", [100, 34, 33, 33]),
        ("x + rank", [100]),
        ("sum([x * rank, x])", [100]),
    ],
)
def test_rows_part_no_more_than_they_must(text: str, runs: list[int]) -> None:
    value, found = runs_of(text, 100)
    assert found == runs
    form = compile_expression(text, None)
    alone_ = [form.evaluate({**FUNCTIONS, "rank": rank, "x": FIVES}) for rank in range(100)]
    assert [bits(take_row(value, rank)) for rank in range(100)] == [bits(each) for each in alone_]


def test_each_rank_goes_alone_where_none_agrees() -> None:
    value, found = runs_of("len(zeros(rank))", 10)
    assert found == [10, *[1] * 10]
    assert value.values.tolist() == [*range(10)]


@pytest.mark.parametrize(
    "text",
    [
        "(rank + 2**52) * 2",
        "(rank + 2**32) * (rank + 2**32)",
        "2**53 - 1 + rank",
        "1 << (rank * 8)",
        "-(2**53) - rank",
        "(2**53 + rank) // 3",
    ],
)
def test_integers_beyond_doubles_are_pythons_own(text: str) -> None:
    form = compile_expression(text, None)
    scopes = [{**FUNCTIONS, "__builtins__": {}, "rank": rank} for rank in range(8)]
    found, _ = at_once(form, scopes)
    assert found == [alone(form, scope) for scope in scopes]


def test_what_is_beyond_doubles_diverges() -> None:
    lanes = Lanes(np.asarray([1, EXACT // 2]))
    assert (lanes + lanes).values.tolist() == [2, EXACT]
    with pytest.raises(Diverge):
        lanes + lanes + 1
    with pytest.raises(Diverge):
        lanes * lanes


def test_a_bound_that_grows_is_looked_at_again() -> None:
    lanes = Lanes(np.asarray([1, 2]), 2)
    for _ in range(100):
        lanes = lanes * 3 - lanes * 2
    assert lanes.values.tolist() == [1, 2]


def test_bools_calculate_as_integers() -> None:
    flags = Lanes(np.asarray([True, False]))
    assert (flags + flags).values.tolist() == [2, 0]
    assert (flags & True).kind == "b"
    assert (-flags).values.tolist() == [-1, 0]


def test_parts_of_one_type_and_shape_are_joined() -> None:
    low, high = np.asarray([0, 2]), np.asarray([1])
    numbers = join_parts([(low, Lanes(np.asarray([1, 2]))), (high, 7)], 3)
    assert numbers.values.tolist() == [1, 7, 2]
    tensors = join_parts([(low, Stack(np.ones((2, 2)))), (high, np.zeros(2))], 3)
    assert tensors.values.tolist() == [[1, 1], [0, 0], [1, 1]]
    lists = join_parts([(low, [1, 2]), (high, [3, 4])], 3)
    assert [each.values.tolist() for each in lists] == [[1, 3, 1], [2, 4, 2]]
    with pytest.raises(MixedRows):
        join_parts([(low, 1.5), (high, 7)], 3)
    with pytest.raises(MixedRows):
        join_parts([(low, np.zeros(2)), (high, np.zeros(3))], 3)
