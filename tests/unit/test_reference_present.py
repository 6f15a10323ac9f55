"""Members that disagree in a collective which not all of them enter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked, codes

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = """\
world_size: 3
tensors:
  x: {0: {dtype: float64, value: [1, 2]}, else: {dtype: float32, value: [1, 2]}}
  y: {0: [1], else: [1, 2]}
  z: [1]
steps:
  - {ranks: [0, 2], CALL}
expect: {outcome: deadlock, diagnosis: STATED}
"""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("all_reduce: {tensor: x}", "dtype_mismatch"),
        ("all_reduce: {tensor: y}", "shape_mismatch"),
        ("all_reduce: {tensor: z, op: {0: sum, else: max}}", "op_mismatch"),
        ("reduce: {tensor: z, dst: rank}", "root_mismatch"),
    ],
)
def test_those_present_are_compared_although_one_never_comes(
    tmp_path: Path, call: str, name: str
) -> None:
    text = ABSENT.replace("CALL", call)
    both = checked(text.replace("STATED", f"[missing_participant, {name}]"), tmp_path)
    assert both.status == "PASSED"
    assert both.predicted is not None
    assert {"crash", "error"} <= set(both.predicted.open)
    one = checked(text.replace("STATED", "missing_participant"), tmp_path)
    assert codes(one) == ["diagnosis_undeclared"]
    assert one.findings[0].diagnosis == name


@pytest.mark.parametrize(
    "first", ["{ranks: 1, fault: {raise: oops}}", "{ranks: 1, fault: kill}", "{ranks: 1, sleep: 0}"]
)
def test_nothing_completes_without_the_part_of_one_who_never_comes(
    tmp_path: Path, first: str
) -> None:
    text = ABSENT.replace("CALL", "all_reduce: {tensor: y}").replace(
        "steps:", f"steps:\n  - {first}"
    )
    stated = "[missing_participant, shape_mismatch]"
    text = text.replace("STATED", stated).replace("outcome: deadlock", "outcome: completes")
    assert "outcome_differs" in codes(checked(text, tmp_path))


def test_those_present_who_agree_have_no_other_fault(tmp_path: Path) -> None:
    text = ABSENT.replace("CALL", "all_reduce: {tensor: z}")
    verdict = checked(text.replace("STATED", "missing_participant"), tmp_path)
    assert verdict.status == "PASSED"
    assert verdict.predicted is not None
    assert [each.name for each in verdict.predicted.diagnoses] == ["missing_participant"]
    assert verdict.predicted.open == ()


@pytest.mark.parametrize("end", ["kill", "exit", "{raise: enough}"])
def test_what_an_ended_rank_had_in_flight_may_be_lost_to_the_others(
    tmp_path: Path, end: str
) -> None:
    text = f"""\
world_size: 3
tensors: {{x: [1]}}
steps:
  - all_reduce: {{tensor: x, async_op: true}}
    as: h
  - {{ranks: 2, fault: {end}}}
  - wait: h
expect: {{outcome: crash}}
"""
    verdict = checked(text, tmp_path)
    assert verdict.predicted is not None
    assert {"error", "deadlock"} <= {*verdict.predicted.open, verdict.predicted.outcome}
    before = text.replace("  - {ranks: 2", "  - {ranks: 2, wait: h}\n  - {ranks: 2", 1)
    waited = checked(before.replace("  - wait: h\n", "  - {ranks: [0, 1], wait: h}\n"), tmp_path)
    assert waited.predicted is not None
    assert waited.predicted.open == ()


@pytest.mark.parametrize(
    ("call", "sure"),
    [
        ("all_reduce: {tensor: e}", False),
        ("all_gather_single: {output: none, input: e}", False),
        ("all_reduce: {tensor: z}", True),
        ("barrier: {}", True),
    ],
)
def test_who_has_nothing_to_give_or_get_misses_nobody(
    tmp_path: Path, call: str, *, sure: bool
) -> None:
    text = f"""\
world_size: 2
tensors: {{e: "zeros(0)", none: "zeros(0)", z: [1]}}
steps:
  - {{ranks: 0, {call}}}
expect: {{outcome: OUTCOME, diagnosis: missing_participant}}
"""
    passes = checked(text.replace("OUTCOME", "completes"), tmp_path)
    assert ("outcome_differs" in codes(passes)) == sure
    assert checked(text.replace("OUTCOME", "deadlock"), tmp_path).status == "PASSED"


@pytest.mark.parametrize("source", ["[0, 1]", "[1]"])
@pytest.mark.parametrize(
    "call",
    [
        "broadcast: {tensor: x, src: 0}",
        "scatter: {tensor: x, scatter_list: {0: parts}, src: 0}",
        "reduce: {tensor: x, dst: 1}",
        "gather: {tensor: x, gather_list: {1: parts}, dst: 1}",
    ],
)
def test_who_has_nothing_to_get_takes_nothing_from_a_root_that_is_not_there(
    tmp_path: Path, call: str, source: str
) -> None:
    text = f"""\
world_size: 2
tensors: {{x: {{0: [1], 1: "zeros(0)"}}, parts: "[zeros(1 - rank) for r in range(2)]"}}
steps:
  - {{ranks: 0, sleep: 1s}}
  - {{ranks: {source}, {call}}}
expect: {{x: {{1: "zeros(0)"}}}}
"""
    verdict = checked(text, tmp_path)
    assert verdict.status == "FAILED"
    assert verdict.predicted is not None
    assert {each.name for each in verdict.predicted.diagnoses} == {
        "shape_mismatch" if source == "[0, 1]" else "missing_participant"
    }
