"""Fixed words in expressions: known where a parameter that holds one is compared, else refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sampling import sampled

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Process
from torch_scenarios.vocabulary import BACKENDS, DTYPES, REDUCE_OPS

#: a file in which `op`, `dtype` and `mode` hold words, `n` a number, and `sum` is also a tensor
FILE = """
world_size: 2
matrix: {op: [sum, max], dtype: [float32]}
cases: [{mode: fast, n: 3}, {mode: slow, n: 4}]
tensors:
  x: [1, 2]
  min: [7]
steps:
  - ranks: "CONDITION"
    barrier:
"""


def selected(tmp_path: Path, condition: str, backend: str | None = None) -> list[bool]:
    """Return whether rank 0 takes the step, in each case."""
    file = tmp_path / "it.yaml"
    file.write_text(FILE.replace("CONDITION", condition), encoding="utf-8")
    found = []
    for scenario in load(file, backend=backend):
        process = Process(plan(scenario), 0, numpy_arrays())
        ranks = scenario.steps[0].ranks
        assert ranks is not None
        found.append(process.selects(ranks))
    return found


def problem(tmp_path: Path, condition: str) -> Problem:
    with pytest.raises(ScenarioError) as caught:
        selected(tmp_path, condition)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("op == sum", [True, True, False, False]),
        ("max != op", [True, True, False, False]),
        ("op in [min, max, product]", [False, False, True, True]),
        ("op not in [min, max]", [True, True, False, False]),
        ("dtype == float32", [True] * 4),
        ("dtype in [int64, bfloat16]", [False] * 4),
        ("mode == fast", [True, False, True, False]),
        ("mode == fast and n == 3", [True, False, True, False]),
        ("backend == gloo", [True] * 4),
        ("backend in [nccl, mpi]", [False] * 4),
        ("op == min", [False] * 4),  # not the tensor of that name
        ("min[0] == 7", [True] * 4),  # here it is the tensor
        ("max(x) == 2", [True] * 4),
        ("op == sum and sum(x) == 3", [True, True, False, False]),
        ("astype(x, float64)[0] == 1", [True] * 4),
        ("zeros(2, dtype=int64)[0] == 0", [True] * 4),
    ],
)
def test_a_fixed_word_is_known_next_to_a_parameter(
    tmp_path: Path, condition: str, expected: list[bool]
) -> None:
    assert selected(tmp_path, condition) == expected


def test_backend_is_that_of_the_run(tmp_path: Path) -> None:
    assert selected(tmp_path, "backend == nccl", backend="nccl") == [True] * 4
    assert selected(tmp_path, "backend == gloo", backend="nccl") == [False] * 4


def test_backend_is_the_first_that_the_file_is_meant_for(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    text = "world_size: 2\nbackends: [nccl, gloo]\nparameters: {b: backend}\nsteps: [barrier: ]\n"
    file.write_text(text, encoding="utf-8")
    (scenario,) = load(file)
    assert scenario.constants["b"] == "nccl"
    assert not scenario.reads_backend or scenario.constants["backend"] == "nccl"


def test_backend_is_a_name_where_the_world_is_sized_and_where_values_are_made(
    tmp_path: Path,
) -> None:
    file = tmp_path / "it.yaml"
    text = 'world_size: "3 if backend == gloo else 2"\ntensors: {x: "full(2, backend == nccl)"}\n'
    file.write_text(text + "steps: [barrier: ]\n", encoding="utf-8")
    (scenario,) = load(file)
    assert (scenario.world_size, scenario.reads_backend) == (3, True)
    (scenario,) = load(file, backend="nccl")
    assert scenario.world_size == 2


@pytest.mark.parametrize("word", ["sum", "float32", "gloo", "bor"])
@pytest.mark.parametrize("place", ["{}", "n == {}", "{} == 1", "x[0] + {}", "{} in [1]", "x == {}"])
def test_elsewhere_a_fixed_word_is_invalid(tmp_path: Path, place: str, word: str) -> None:
    found = problem(tmp_path, place.format(word))
    assert found.code == "fixed_word"
    assert found.hint is not None
    assert found.hint.startswith("compare it with a parameter")
    assert found.mark is not None
    assert found.mark.column is not None
    text = FILE.replace("CONDITION", place.format(word)).splitlines()[found.mark.line - 1]
    assert text[found.mark.column - 1 :].startswith(word)


#: how a hint writes what to put in place of the marked words
SUGGESTIONS = (
    r"write a name without quotes: (\S+)",
    r"write a dtype without quotes: (\S+)",
    r"write a dtype by its name alone: (\S+)",
    r"write the word alone: (\S+)",
    r"did you mean `([^`]+)`\?",
)
SPELLINGS = ("{}", "'{}'", "torch.{}", "dist.ReduceOp.{}", "ReduceOp.{}", "{}m")
PLACES = (
    *("op == {}", "{} == op", "op in [{}]", "op in [{}, max]", "backend == {}", "mode != {}"),
    *("{}", "n == {}", "x[0] == {}", "{} + 1", "sum({})", "astype(x, {})[0] == 1", "{} in op"),
    "zeros(2, dtype={})[0] == 0",
)
#: what is wrong with a value, once every word in it is known
UNFIT = {"cannot_compute", "bad_selector"}


def after_the_hint(condition: str, hint: str, found: Problem) -> str | None:
    """Return the condition with what a hint says in place of what is marked; None: it says less."""
    for form in SUGGESTIONS:
        suggested = re.search(form, hint)
        mark = found.mark
        if suggested is None or mark is None or mark.end_column is None:
            continue
        line = FILE.replace("CONDITION", condition).splitlines()[mark.line - 1]
        begin = line.index(condition)
        start, end = mark.column - 1 - begin, mark.end_column - 1 - begin
        return condition[:start] + suggested[1] + condition[end:]
    return None


def codes(tmp_path: Path, condition: str) -> set[str]:
    """Return the codes of what is wrong with a condition; of what it computes, nothing is said."""
    try:
        selected(tmp_path, condition)
    except ScenarioError as error:
        return {each.code for each in error.problems}
    return set()


@pytest.mark.parametrize("place", sampled(list(PLACES), 8))
def test_no_hint_leads_from_one_spelling_that_fails_to_another(tmp_path: Path, place: str) -> None:
    followed = 0
    for word in ("sum", "min", "SUM", "float32", "int64", "gloo", "fast", "x", "op", "exp", "even"):
        for spelling in SPELLINGS:
            condition = place.format(spelling.format(word))
            try:
                selected(tmp_path, condition)
            except ScenarioError as error:
                (found, *_) = error.problems
                corrected = after_the_hint(condition, found.hint or "", found)
                if corrected is None:
                    continue
                followed += 1
                assert codes(tmp_path, corrected) <= UNFIT, (condition, corrected)
    assert followed


def test_the_words_are_those_of_the_tables() -> None:
    assert {"float32", "bool"} <= set(DTYPES)
    assert {"sum", "bxor"} <= set(REDUCE_OPS)
    assert {"gloo", "nccl"} <= set(BACKENDS)
