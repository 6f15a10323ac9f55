"""An expectation is a look at a tensor: what it may look at, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked, codes

if TYPE_CHECKING:
    from pathlib import Path

BESIDE = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: h
    expect: {KEY: WANTED}
  - wait: h
    expect: {x: [2]}
"""
LATER = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: h
  - expect: {KEY: WANTED}
  - wait: h
"""
RECEIVED = """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - ranks: 1
    irecv: {tensor: y, src: 0}
    as: h
    expect: {KEY: WANTED}
  - {ranks: 1, wait: h}
"""
PART = """\
world_size: 2
tensors: {m: "full([2, 2], rank + 1)"}
steps:
  - all_reduce: {tensor: "m[0]", async_op: true}
    as: h
  - expect: {KEY: WANTED}
  - wait: h
    expect: {"m[0]": [3, 3]}
"""


def case(text: str, key: str, wanted: str, *, diagnosis: str | None = None, size: int = 2) -> str:
    text = text.replace("KEY", key).replace("WANTED", wanted)
    text = text.replace("world_size: 2", f"world_size: {size}")
    return text + (f"expect: {{diagnosis: {diagnosis}}}\n" if diagnosis else "")


IN_FLIGHT = [
    pytest.param(BESIDE, "x", "[1]", id="beside its start"),
    pytest.param(BESIDE, "x", "[2]", id="what it will be"),
    pytest.param(BESIDE, "x", "unchanged", id="unchanged"),
    pytest.param(BESIDE, "y", '"x - 1"', id="the wanted value reads it"),
    pytest.param(BESIDE, '"x + 1"', "[2]", id="an expression of it"),
    pytest.param(BESIDE, '"x[0]"', "1", id="an element of it"),
    pytest.param(BESIDE, "x", "{1: [1]}", id="on one rank"),
    pytest.param(LATER, "x", "[1]", id="a step of its own"),
    pytest.param(RECEIVED, "y", "[0]", id="a receive"),
    pytest.param(PART, '"m[0]"', '"full(2, rank + 1)"', id="the part that is in flight"),
    pytest.param(PART, "m", "unchanged", id="all of a tensor of which a part is in flight"),
    pytest.param(PART, '"sum(m)"', '"4 * (rank + 1)"', id="a sum over a part in flight"),
]


@pytest.mark.parametrize(("text", "key", "wanted"), IN_FLIGHT)
def test_an_expectation_of_a_tensor_in_flight_is_a_buffer_race(
    text: str, key: str, wanted: str, tmp_path: Path
) -> None:
    verdict = checked(case(text, key, wanted), tmp_path)
    assert verdict.status == "FAILED"
    assert verdict.predicted is not None
    assert {each.name for each in verdict.predicted.diagnoses} == {"buffer_race"}
    assert "diagnosis_undeclared" in codes(verdict)
    stated = checked(case(text, key, wanted, diagnosis="buffer_race"), tmp_path)
    assert (stated.status, stated.findings) == ("PASSED", ())


@pytest.mark.parametrize(
    ("text", "key", "wanted"),
    [
        pytest.param(BESIDE, "y", "[0]", id="another tensor"),
        pytest.param(BESIDE, "x", "{shape: [1], dtype: float32}", id="its shape and dtype"),
        pytest.param(PART, '"m[1]"', '"full(2, rank + 1)"', id="another part of it"),
        pytest.param(
            "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
            "  - {ranks: 0, isend: {tensor: x, dst: 1}, as: h, expect: {KEY: WANTED}}\n"
            "  - {ranks: 1, recv: {tensor: y, src: 0}}\n  - {ranks: 0, wait: h}\n",
            "x",
            "[1]",
            id="what is only sent",
        ),
    ],
)
def test_what_no_running_work_writes_may_be_expected(
    text: str, key: str, wanted: str, tmp_path: Path
) -> None:
    verdict = checked(case(text, key, wanted), tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())


def test_many_ranks_race_as_few_do(tmp_path: Path) -> None:
    verdict = checked(case(BESIDE, "x", "[1]", size=20).replace("[2]", "[20]"), tmp_path)
    assert verdict.status == "FAILED"
    assert "diagnosis_undeclared" in codes(verdict)


EMPTY = """\
world_size: 2
tensors: {x: "zeros(0)", l: "[zeros(0), zeros(0)]"}
steps:
  - reduce: {tensor: x, dst: 0}
  - all_reduce: {tensor: x}
    expect: {x: []}
  - reduce: {tensor: "l[1]", dst: 0}
  - compute: {y: "l[1] + x"}
expect: {x: {shape: [0]}, y: []}
"""


@pytest.mark.parametrize("size", [2, 20])
def test_a_tensor_without_elements_is_never_undefined(size: int, tmp_path: Path) -> None:
    verdict = checked(EMPTY.replace("world_size: 2", f"world_size: {size}"), tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())


LEFT = """\
world_size: 2
tensors: {x: "full([2, 3], rank)", l: "[zeros(2), ones(2)]"}
steps:
  - reduce: {tensor: x, dst: 0}
    expect: {KEY: WANTED}
  - reduce: {tensor: "l[0]", dst: 0}
  - compute: {y: "zeros(shape(x)) + numel(x)"}
    expect: {y: "full([2, 3], 6)"}
expect: {KEY: WANTED}
"""
MEASURES = [
    ("x", "{shape: [2, 3], dtype: float32}"),
    ('"shape(x)"', "[2, 3]"),
    ('"numel(x)"', "6"),
    ('"len(x)"', "2"),
    ('"shape(x[1])"', "[3]"),
    ("l", "{shape: [2]}"),
    ('"shape(l[0])"', "[2]"),
    ('"x[0]"', "{shape: [3]}"),
]


@pytest.mark.parametrize(("key", "wanted"), MEASURES)
@pytest.mark.parametrize("size", [2, 20])
def test_the_shape_and_dtype_of_an_undefined_tensor_are_defined(
    key: str, wanted: str, size: int, tmp_path: Path
) -> None:
    verdict = checked(case(LEFT, key, wanted, size=size), tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("x", "{shape: [3]}"), ("x", "{dtype: int64}"), ('"shape(x)"', "[2, 4]")],
)
def test_a_wrong_shape_of_an_undefined_tensor_fails(key: str, wanted: str, tmp_path: Path) -> None:
    verdict = checked(case(LEFT, key, wanted), tmp_path)
    assert not set(codes(verdict)) & {"undefined_read", "diagnosis_undeclared"}
    assert verdict.status == "FAILED"


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("x", "unchanged"),
        ("x", "{value: 0, shape: [2, 3]}"),
        ('"x[0]"', "[0, 0, 0]"),
        ('"sum(x)"', "0"),
        ('"x[int(x[0, 0])]"', "{value: [0, 0, 0]}"),
        ('"numel(x + 1) + sum(x)"', "0"),
    ],
)
def test_the_elements_of_an_undefined_tensor_may_not_be_relied_on(
    key: str, wanted: str, tmp_path: Path
) -> None:
    verdict = checked(case(LEFT, key, f"{{1: {wanted}}}"), tmp_path)
    assert set(codes(verdict)) == {"undefined_read"}


ROWS = """\
world_size: 2
tensors:
  m: "full([2, 2], rank + 1)"
  y: "zeros(2)"
  g: "zeros(2 * world_size)"
  l: "[zeros(2), ones(2)]"
steps:
  - reduce: {tensor: "m[0]", dst: 0}
"""


@pytest.mark.parametrize(
    "steps",
    [
        (
            '  - all_reduce: {tensor: "m[1]"}\n'
            '    expect: {"m[1]": "full(2, world_size * (world_size + 1) / 2)"}\n'
        ),
        '  - broadcast: {tensor: "m[0]", src: 0}\n  - all_reduce: {tensor: m}\n',
        (
            '  - reduce: {tensor: "m[1]", dst: 0}\n  - broadcast: {tensor: "m[0]", src: 0}\n'
            '  - all_reduce: {tensor: "m[0]"}\n'
        ),
        '  - reduce: {tensor: "l[0]", dst: 0}\n  - all_reduce: {tensor: "l[1]"}\n',
        '  - all_gather_single: {output: g, input: "m[1]"}\n',
    ],
)
@pytest.mark.parametrize("size", [2, 20])
def test_only_the_part_that_an_operation_left_undefined_is(
    steps: str, size: int, tmp_path: Path
) -> None:
    text = ROWS.replace("world_size: 2", f"world_size: {size}") + steps
    verdict = checked(text, tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())


@pytest.mark.parametrize(
    "steps",
    [
        '  - all_reduce: {tensor: "m[0]"}\n',
        "  - all_reduce: {tensor: m}\n",
        '  - all_reduce: {tensor: "m[:, 0]"}\n',
        (
            '  - reduce: {tensor: "m[1]", dst: 0}\n  - broadcast: {tensor: "m[0]", src: 0}\n'
            '  - all_reduce: {tensor: "m[1]"}\n'
        ),
        '  - compute: {y: "m[0] + 1"}\n  - all_reduce: {tensor: "y[0:1]"}\n',
        '  - reduce: {tensor: "l[0]", dst: 0}\n  - all_reduce: {tensor: "l[0]"}\n',
        '  - reduce: {tensor: m, dst: 0}\n  - all_reduce: {tensor: "m[1]"}\n',
        '  - broadcast: {tensor: "m[0, 0:1]", src: 0}\n  - all_reduce: {tensor: "m[0]"}\n',
    ],
)
def test_the_part_that_an_operation_left_undefined_may_not_be_read(
    steps: str, tmp_path: Path
) -> None:
    verdict = checked(ROWS + steps, tmp_path)
    assert set(codes(verdict)) == {"diagnosis_undeclared"}
    assert verdict.predicted is not None
    assert {each.name for each in verdict.predicted.diagnoses} == {"undefined_read"}


@pytest.mark.parametrize("key", ["m[0]", "m", "m[:, 1]", "sum(m)"])
def test_an_expectation_of_the_undefined_part_is_wrong(key: str, tmp_path: Path) -> None:
    text = f'{ROWS}  - barrier:\n    expect: {{"{key}": {{1: unchanged}}}}\n'
    assert codes(checked(text, tmp_path)) == ["undefined_read"]
