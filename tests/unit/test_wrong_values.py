"""What an expression yields is taken as it is: nothing is rounded, and nothing wrong is a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from judging import checked

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.evaluator import flag, seconds, take_integer, wholes
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.errors import Problem
    from torch_scenarios.model.trace import Trace

HEAD = """\
world_size: 2
parameters: {word: foo}
objects: {number: 5, config: {a: 1}}
tensors: {x: [1, 2], y: [1, 2]}
steps:
"""


def simulated(step: str, tmp_path: Path) -> Trace:
    file = tmp_path / "it.yaml"
    file.write_text(f"{HEAD}  - {step}\n", encoding="utf-8")
    (scenario,) = load(file)
    return simulate(plan(scenario))


def refused(step: str, tmp_path: Path) -> Problem:
    with pytest.raises(ScenarioError) as caught:
        simulated(step, tmp_path)
    problem = caught.value.problems[0]
    assert problem.mark is not None
    assert problem.mark.line == 6
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ('broadcast: {tensor: x, src: "0.7"}', "0.7 is not an integer"),
        ('broadcast: {tensor: x, src: "x"}', "a tensor of 2 elements is not a number"),
        ("broadcast: {tensor: x, src: word}", "'foo' is not a number"),
        ('broadcast: {tensor: x, src: "[0]"}', "a list is not a number"),
        ('{ranks: 0, send: {tensor: x, dst: 1, tag: "1 / 2"}}', "0.5 is not an integer"),
        (
            'all_to_all_single: {input: x, output: y, input_split_sizes: "[0.5, 1.5]"}',
            "0.5 is not an integer",
        ),
        ('new_group: {name: g, group_ranks: "[0, 1 / 3]"}', "0.333333 is not an integer"),
        ('all_reduce: {tensor: x, async_op: "x"}', "a tensor of 2 elements is not a number"),
        ('all_reduce: {tensor: x, async_op: "rank + 1"}', "2 is neither true nor false"),
        ("broadcast_object_list: {object_list: number, src: 0}", "5 is not a list"),
        ("broadcast_object_list: {object_list: config, src: 0}", "{'a': 1} is not a list"),
        ("{ranks: 0, send_object_list: {object_list: number, dst: 1}}", "5 is not a list"),
        ('sleep: "rank - 5"', "a duration is zero or more seconds, not -5"),
    ],
)
def test_an_argument_of_another_kind_is_told_and_not_rounded(
    step: str, said: str, tmp_path: Path
) -> None:
    problem = refused(step, tmp_path)
    assert problem.code == "wrong_type"
    assert f": {said}" in problem.message


@pytest.mark.parametrize(
    "step",
    [
        'broadcast: {tensor: y, src: "x[0]"}',
        'broadcast: {tensor: y, src: "astype(x, bfloat16)[0]"}',
        'broadcast: {tensor: y, src: "world_size / 2"}',
        'broadcast: {tensor: y, src: "rank > 5"}',
        'all_reduce: {tensor: x, async_op: "x[0] > 7"}',
    ],
)
def test_a_whole_number_is_one_in_whatever_dtype(step: str, tmp_path: Path) -> None:
    assert simulated(step, tmp_path).outcome == "completes"


@pytest.mark.parametrize("selector", ["1 / 3", "x", "[x, x]", "x[0] / 2", "word"])
def test_a_selector_that_selects_nobody_in_particular_is_told(
    selector: str, tmp_path: Path
) -> None:
    problem = refused(f'{{ranks: "{selector}", barrier: {{}}}}', tmp_path)
    assert problem.code == "bad_selector"
    assert f"`{selector}`" in problem.message


def test_a_rank_without_a_word_that_it_needs_is_told(tmp_path: Path) -> None:
    problem = refused("fault: {0: kill}", tmp_path)
    assert problem.code == "missing_argument"
    assert problem.message.endswith("has no value on rank 1")


def test_a_rank_that_no_branch_of_a_wait_selects_waits_for_nothing(tmp_path: Path) -> None:
    steps = (
        "{all_reduce: {tensor: x, async_op: true}, as: one}\n"
        "  - wait: {0: one}\n  - {ranks: 1, wait: one}"
    )
    assert simulated(steps, tmp_path).diagnoses == ()


def test_numbers_are_read_strictly() -> None:
    assert take_integer(np.float32(3)) == 3
    assert take_integer(np.ones((1, 1))) == 1
    assert take_integer(numpy_arrays().array(2, "bfloat16")) == 2
    assert wholes(range(3)) == [0, 1, 2]
    assert flag(np.True_) is True
    assert flag(0) is False
    assert seconds(np.int8(1)) == 1.0
    for value in (float("inf"), float("nan"), 0.1, np.float16(0.5)):
        with pytest.raises(ValueError, match="not an integer"):
            take_integer(value)
    for other in (None, "1", [1], 1j):
        with pytest.raises(TypeError, match="is not a number"):
            take_integer(other)
    with pytest.raises(ValueError, match="neither true nor false"):
        flag(2)
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a duration"):
            seconds(value)


@pytest.mark.parametrize(
    ("steps", "said", "hint"),
    [
        (
            'compute: {z: "held + 1"}',
            "`held + 1` cannot be computed on rank 1: `held` has no value there",
            "`ranks:`",
        ),
        (
            'compute: {z: "late + 1"}\n  - compute: {late: 1}',
            "`late` has no value there; `late` is made further down (line 6)",
            "under `tensors:`",
        ),
        ('{ranks: "held[0] > 3", barrier: {}}', "`held` has no value there", "`else`"),
        (
            'for: {i: "rank"}\n    steps: [{barrier: {}}]',
            "cannot run over the number 0",
            "range(n)",
        ),
        ('for: {i: "[1.5]"}\n    steps: [{barrier: {}}]', "1.5 is not an integer", "integers"),
        (
            'for: {i: "None"}\n    steps: [{barrier: {}}]',
            "nothing to run over on rank 0",
            "integers",
        ),
    ],
)
def test_a_name_without_a_value_is_named_with_what_makes_it(
    steps: str, said: str, hint: str, tmp_path: Path
) -> None:
    file = tmp_path / "it.yaml"
    text = f"world_size: 2\ntensors:\n  held: {{0: [1]}}\nsteps:\n  - {steps}\n"
    file.write_text(text, encoding="utf-8")
    (scenario,) = load(file)
    with pytest.raises(ScenarioError) as caught:
        simulate(plan(scenario))
    (problem,) = caught.value.problems
    assert said in problem.message
    assert hint in (problem.hint or "")
    assert problem.mark is not None
    assert problem.mark.line == 5


@pytest.mark.parametrize(
    "expected",
    [
        'x: {shape: "[x, x]"}',
        'x: {shape: "[2 / 4]"}',
        'elapsed: {min: "x"}',
    ],
)
def test_an_expectation_of_another_kind_is_told(expected: str, tmp_path: Path) -> None:
    verdict = checked(f"{HEAD}  - expect: {{{expected}}}\n", tmp_path)
    assert verdict.status == "INVALID"
    (problem, *_) = verdict.problems
    assert problem.mark is not None
    assert problem.mark.line == 6


def test_a_word_in_place_of_seconds_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        checked(f"{HEAD}  - expect: {{elapsed: {{max: int8}}}}\n", tmp_path)
    (problem,) = caught.value.problems
    assert problem.code == "fixed_word"
    assert problem.mark is not None
    assert problem.mark.line == 6
