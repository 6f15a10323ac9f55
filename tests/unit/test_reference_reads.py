"""What an expression reads of a tensor that is undefined, or in flight, in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from judging import checked, codes

from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.evaluator import depends
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import Undefined

if TYPE_CHECKING:
    from pathlib import Path

FLYING = """\
world_size: SIZE
tensors: {m: "full([2, 2], rank + 1)", y: [0], z: "zeros([2, 2])"}
steps:
  - all_reduce: {tensor: "m[0]", async_op: true}
    as: h
  - STEP
  - wait: h
"""
LEFT = """\
world_size: SIZE
tensors: {m: "full([2, 2], rank + 1)", y: [0], z: "zeros([2, 2])"}
steps:
  - reduce: {tensor: "m[0]", dst: 0}
  - STEP
"""
TOUCHING = ["m + 1", "sum(m)", "max(m)", "m[0, 1]", "m[:, 1]", "reshape(m, [4])[1:]", "sum(abs(m))"]
BESIDE = ["m[1] + 1", "sum(m[1])", "m[1, 0]", "reshape(m, [4])[2:]", "shape(m)[0]", "numel(m)"]


def found(text: str, step: str, folder: Path, size: int = 2) -> list[str]:
    verdict = checked(text.replace("STEP", step).replace("SIZE", str(size)), folder)
    assert verdict.predicted is not None
    assert set(codes(verdict)) <= {"diagnosis_undeclared", "undefined_read"}
    return sorted({diagnosis.name for diagnosis in verdict.predicted.diagnoses})


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize("text", TOUCHING)
def test_a_value_computed_from_a_part_in_flight_is_a_race(
    tmp_path: Path, text: str, size: int
) -> None:
    step = f'compute: {{y: "{text}"}}'
    assert found(FLYING, step, tmp_path, size) == ["buffer_race"]
    assert found(LEFT, step, tmp_path, size) == ["undefined_read"]


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize("text", BESIDE)
def test_a_value_computed_beside_it_is_none(tmp_path: Path, text: str, size: int) -> None:
    step = f'compute: {{y: "{text}"}}'
    assert found(FLYING, step, tmp_path, size) == []
    assert found(LEFT, step, tmp_path, size) == []


@pytest.mark.parametrize(("key", "races"), [("sum(m)", True), ("sum(m[1])", False)])
def test_an_expectation_looks_at_what_its_value_depends_on(
    tmp_path: Path, key: str, *, races: bool
) -> None:
    step = f'expect: {{"{key}": "2 * (rank + 1)"}}'
    assert ("buffer_race" in found(FLYING, step, tmp_path)) == races


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize("text", ["m + 1", "m[[0, 1]]"])
def test_what_is_sent_is_read_where_it_is_computed(tmp_path: Path, text: str, size: int) -> None:
    step = f'all_gather: {{tensor: "{text}", tensor_list: "[z for i in range({size})]"}}'
    assert "buffer_race" in found(FLYING, step, tmp_path, size)
    assert "undefined_read" in found(LEFT, step, tmp_path, size)


def test_what_is_computed_from_the_undefined_arrives_undefined(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {m: [1, 1], y: [0, 0]}
steps:
  - reduce: {tensor: m, dst: 1}
  - {ranks: 0, send: {tensor: "m + 1", dst: 1}}
  - {ranks: 1, recv: {tensor: y, src: 0}}
expect: {diagnosis: undefined_read}
"""
    verdict = checked(text, tmp_path)
    assert verdict.status == "PASSED"
    assert verdict.predicted is not None
    received = verdict.predicted.ranks[1].events[-1].writes["y"]
    assert isinstance(received, Undefined)


def test_probing_leaves_every_element_as_it_was() -> None:
    form = compile_expression("sum(x) + y[0]", None)
    x, y = np.arange(4.0), np.arange(2)
    scope = {**numpy_arrays().functions(), "__builtins__": {}, "x": x, "y": y}
    assert depends(form, scope, (x[:2], y[:1]))
    assert not depends(form, scope, (y[1:],))
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float8_e4m3fn"])
def test_every_dtype_can_be_probed(dtype: str) -> None:
    x = numpy_arrays().array([0, 1], dtype)
    scope = {**numpy_arrays().functions(), "__builtins__": {}, "x": x}
    assert depends(compile_expression("x[:1]", None), scope, (x[:1],))
    assert not depends(compile_expression("x[1:]", None), scope, (x[:1],))


def test_what_cannot_be_computed_of_the_undefined_has_read_it(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {m: [1, 1]}
steps:
  - reduce: {tensor: m, dst: 1}
expect:
  m: {1: [2, 2]}
  "[5, 6][int(m[0])]": {0: 6}
  diagnosis: undefined_read
"""
    assert checked(text, tmp_path).status == "PASSED"
    without = text.replace("  diagnosis: undefined_read\n", "")
    assert codes(checked(without, tmp_path)) == ["undefined_read"]


@pytest.mark.parametrize(
    ("wanted", "relies"),
    [("[1]", True), ("unchanged", True), ("{dtype: float32, shape: [1]}", False)],
)
def test_a_call_that_fails_midway_leaves_nothing_to_rely_on_beside_it(
    tmp_path: Path, wanted: str, *, relies: bool
) -> None:
    text = f"""\
world_size: 3
tensors: {{x: [1]}}
steps:
  - ranks: [0, 1]
    all_reduce: {{tensor: x}}
    expect: {{raises: [timeout, peer_lost], x: {wanted}}}
expect: {{diagnosis: missing_participant}}
"""
    verdict = checked(text, tmp_path)
    assert codes(verdict) == (["undefined_read"] if relies else [])


def test_a_call_that_is_refused_leaves_everything_as_it_was(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 0}, expect: {raises: invalid_argument, x: [1]}}
expect: {diagnosis: invalid_argument}
"""
    assert checked(text, tmp_path).status == "PASSED"


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize("step", ['all_reduce: {tensor: "m[4:8]"}', 'compute: {y: "2 * m[4:8]"}'])
@pytest.mark.parametrize("given", ["m", "m[0]", "m[0:4]"])
def test_a_view_without_elements_touches_nothing(
    tmp_path: Path, given: str, step: str, size: int
) -> None:
    assert found(FLYING.replace("m[0]", given), step, tmp_path, size) == []
    assert found(LEFT.replace("m[0]", given), step, tmp_path, size) == []
