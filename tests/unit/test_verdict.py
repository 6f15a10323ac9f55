"""Three witnesses: who stands alone, and what is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from judging import (
    at_step,
    checked,
    codes,
    hanging,
    loaded,
    on_rank,
    raising,
    ran,
    writing,
)
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.groups import plan
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

SUM = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x}
"""
RIGHT = SUM + "    expect:\n      x: [3, 3]\n"
WRONG = SUM + "    expect:\n      x: [3, 4]\n"


def test_three_witnesses_in_agreement_pass(tmp_path: Path) -> None:
    verdict = ran(RIGHT, tmp_path)
    assert verdict.status == "PASSED"
    assert verdict.findings == ()


def test_an_expectation_against_the_semantics_is_wrong_without_a_run(tmp_path: Path) -> None:
    verdict = checked(WRONG, tmp_path)
    (finding,) = verdict.findings
    assert verdict.status == "FAILED"
    assert (finding.witness, finding.code) == ("expectation", "value_differs")
    assert finding.ranks == (0, 1)
    assert finding.mark is not None
    assert (finding.mark.line, finding.mark.column) == (7, 10)
    assert finding.differences[0].max_abs == 1.0
    assert finding.differences[0].wrong is not None
    assert finding.differences[0].wrong.tolist() == [False, True]


def test_an_expectation_that_only_the_author_holds_is_wrong(tmp_path: Path) -> None:
    (finding,) = ran(WRONG, tmp_path).findings
    assert finding.witness == "expectation"


def test_a_run_that_stands_alone_deviates(tmp_path: Path) -> None:
    (finding,) = ran(RIGHT, tmp_path, writing(0, 1, "x", [3, 5])).findings
    assert (finding.witness, finding.code, finding.ranks) == ("backend", "value_differs", (1,))


def test_a_reference_that_stands_alone_deviates(tmp_path: Path) -> None:
    changes = [writing(0, rank, "x", [3, 4]) for rank in (0, 1)]
    (finding,) = ran(WRONG, tmp_path, *changes).findings
    assert finding.witness == "reference"


def test_with_the_reference_switched_off_the_run_refutes_the_author(tmp_path: Path) -> None:
    assert ran(RIGHT, tmp_path, reference=False).status == "PASSED"
    (finding,) = ran(WRONG, tmp_path, reference=False).findings
    assert (finding.witness, finding.against) == ("expectation", "run")


def test_a_written_tensor_is_compared_though_nobody_expects_it(tmp_path: Path) -> None:
    assert ran(SUM, tmp_path).compared > ran(SUM + "", tmp_path, reference=False).compared
    (finding,) = ran(SUM, tmp_path, writing(0, 0, "x", [0, 3])).findings
    assert (finding.witness, finding.code, finding.ranks) == ("backend", "value_differs", (0,))
    assert finding.name == "x"


GATHERED = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
  y: "full(2, rank + 1)"
  all: "zeros(4)"
steps:
  - all_reduce: {tensor: x}
  - all_gather_single: {output: all, input: y}
"""


def holding(rank: int, name: str, value: list[float]) -> Callable[[Trace], Trace]:
    """Let one rank hold something in the end that no step stored."""
    stray = {name: np.asarray(value, dtype=np.float32)}
    return on_rank(rank, lambda found: replace(found, strays=stray))


def test_what_is_held_in_the_end_though_no_step_stored_it_deviates(tmp_path: Path) -> None:
    changes = [holding(rank, "y", [0, rank + 1]) for rank in (0, 1)]
    (finding,) = ran(GATHERED, tmp_path, *changes).findings
    assert (finding.witness, finding.code, finding.ranks) == ("backend", "value_differs", (0, 1))
    assert (finding.name, finding.label) == ("y", "all_gather_single")
    assert "in the end, though no step stores into it" in finding.prose


def test_what_a_step_stored_wrongly_is_not_told_again_for_the_end(tmp_path: Path) -> None:
    changes = [writing(0, 1, "x", [0, 0]), holding(1, "x", [0, 1])]
    (finding,) = ran(GATHERED, tmp_path, *changes).findings
    assert finding.label == "all_reduce"


def test_what_nobody_waits_for_may_be_stored_at_any_time(tmp_path: Path) -> None:
    text = GATHERED.replace("{tensor: x}", "{tensor: x, async_op: true}")
    assert "async_op" in text
    codes_ = [each.code for each in ran(text, tmp_path, holding(0, "x", [9, 9])).findings]
    assert codes_ == ["diagnosis_undeclared"]


def test_a_scenario_of_barriers_asserts_its_outcome_and_says_so(tmp_path: Path) -> None:
    verdict = checked("world_size: 2\nsteps:\n  - barrier: {}\n", tmp_path)
    assert verdict.status == "PASSED"
    assert verdict.compared > 0
    assert any("outcome alone" in note for note in verdict.notes)


# ---------------------------------------------------------------------------- what is wanted

FORMS = {
    "a literal": "x: [3, 3]",
    "an expression": 'x: "full(2, 3)"',
    "an expression of the rank": 'x: "full(2, 3 + rank - rank)"',
    "a mapping": "x: {0: [3, 3], else: [3, 3]}",
    "the long form": "x: {value: [3, 3], dtype: float32, shape: [2]}",
    "a shape alone": "x: {dtype: float32, shape: [2]}",
    "before": 'x: "sum([before(x, r) for r in range(world_size)])"',
    "before of one rank": 'x: "before(x, 0) * 3"',
    "an expression as key": '"x[0] + x[1]": 6',
    "a group function": '"group_rank(world)": {0: 0, 1: 1}',
    "a list of ranks": '"group_ranks(world)": [0, 1]',
    "loose": "x: {value: [3.1, 3], rtol: 0.1}",
    "a subset of ranks": "x: {1: [3, 3]}",
}
UNMET = {
    "a number for a tensor": ("x: 3", "shape_differs"),
    "a list too long": ("x: [3, 3, 3]", "shape_differs"),
    "a nested list": ("x: [[3, 3]]", "shape_differs"),
    "another dtype": ("x: {value: [3, 3], dtype: float64}", "dtype_differs"),
    "another shape": ("x: {shape: [3]}", "shape_differs"),
    "a wrong before": ('x: "before(x, 0) * 2"', "value_differs"),
    "unchanged": ("x: unchanged", "value_differs"),
    "a wrong key": ('"x[0] + x[1]": 7', "value_differs"),
    "a wrong group rank": ('"group_rank(world)": {0: 0, 1: 2}', "value_differs"),
    "strict": ("x: {value: [3.000001, 3], rtol: 1e-9, atol: 0}", "value_differs"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_that_holds_passes(form: str, tmp_path: Path) -> None:
    assert checked(f"{SUM}    expect:\n      {form}\n", tmp_path).findings == ()


@pytest.mark.parametrize(("form", "code"), UNMET.values(), ids=UNMET)
def test_a_form_that_does_not_hold_fails(form: str, code: str, tmp_path: Path) -> None:
    verdict = checked(f"{SUM}    expect:\n      {form}\n", tmp_path)
    assert verdict.status == "FAILED"
    assert code in codes(verdict)


def test_unchanged_means_before_the_step_and_at_the_end_the_beginning(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(2, rank)"}
steps:
  - compute: {x: "x + 1"}
  - ranks: 0
    compute: {x: "x + 1"}
  - barrier: {}
    expect: {x: unchanged}
expect:
  x: {0: [2, 2], 1: [2, 2]}
"""
    assert checked(text, tmp_path).findings == ()
    (finding,) = checked(text.replace("{0: [2, 2], 1: [2, 2]}", "unchanged"), tmp_path).findings
    assert finding.ranks == (0, 1)


def test_before_looks_at_a_rank_that_did_not_take_the_step(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [0]}
steps:
  - compute: {x: "x + 10"}
  - ranks: 0
    compute: {y: "x"}
    expect: {"before(x, 1)": [11], y: "before(x, 1) - 1"}
  - compute: {x: "x + 10"}
"""
    assert checked(text, tmp_path).findings == ()


def test_a_key_that_is_a_view_keeps_what_it_was(tmp_path: Path) -> None:
    text = """\
world_size: 1
tensors: {x: [1, 2]}
steps:
  - expect: {"x[0]": 1, "x[0:2]": [1, 2], "[x[0], x[1]]": [1, 2]}
  - all_reduce: {tensor: x, op: {premul_sum: 2}}
    expect: {"x[0]": 2}
"""
    assert checked(text, tmp_path).findings == ()


def test_before_follows_the_iterations_of_a_loop(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [0], y: [0]}
steps:
  - for: {i: "[3, 1, 2]"}
    steps:
      - compute: {x: "x + i"}
      - ranks: 0
        compute: {y: "x"}
        expect:
          y: "before(x, 1)"
"""
    assert checked(text, tmp_path).findings == ()


def test_findings_of_many_iterations_are_one(tmp_path: Path) -> None:
    text = """\
world_size: 1
tensors: {x: [0]}
steps:
  - for: {i: "range(5)"}
    steps:
      - compute: {x: "x + 1"}
        expect: {x: [1]}
"""
    (finding,) = checked(text, tmp_path).findings
    assert (finding.iteration, finding.more) == ((1,), 3)


def test_lists_of_tensors_are_compared_item_by_item(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
  all: "[zeros(2), zeros(2)]"
steps:
  - all_gather: {tensor_list: all, tensor: x}
    expect:
      all: [[1, 1], [2, 3]]
"""
    (finding,) = checked(text, tmp_path).findings
    assert {difference.item for difference in finding.differences} == {(1,)}
    assert "all[1]" in finding.prose


def test_a_value_that_an_operation_leaves_undefined_may_not_be_relied_on(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - reduce: {tensor: x, dst: 0}
    expect: {x: [3]}
"""
    assert codes(checked(text, tmp_path)) == ["undefined_read"]
    assert checked(text.replace("{x: [3]}", "{x: {0: [3]}}"), tmp_path).status == "PASSED"


def test_a_stated_mismatch_leaves_its_value_to_the_run(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - all_reduce: {tensor: x, op: {0: sum, 1: max}}
    expect: {x: [3]}
expect: {diagnosis: op_mismatch}
"""
    assert checked(text, tmp_path).status == "PASSED"


def test_a_slow_machine_is_inconclusive_and_not_a_failure(tmp_path: Path) -> None:
    verdict = ran(SUM, tmp_path, raising(0, 1, "timeout"), raising(0, 0, "peer_lost"))
    assert verdict.status == "INCONCLUSIVE"
    assert verdict.reason is not None
    assert "timeout" in verdict.reason


def test_a_hang_that_nothing_predicts_fails_and_names_the_position(tmp_path: Path) -> None:
    verdict = ran(SUM, tmp_path, hanging(0, 0), hanging(0, 1))
    assert verdict.status == "FAILED"
    assert {"outcome_differs", "conduct_differs"} <= set(codes(verdict))
    assert "ranks 0 and 1 are blocked in `all_reduce`" in verdict.findings[0].prose


def test_an_expectation_that_cannot_be_computed_is_invalid(tmp_path: Path) -> None:
    verdict = checked(f'{SUM}    expect:\n      x: "full(2, 1 // rank)"\n', tmp_path)
    assert verdict.status == "INVALID"
    assert [problem.code for problem in verdict.problems] == ["cannot_compute"]


def test_a_wrong_program_that_a_backend_lets_pass_is_silently_wrong(tmp_path: Path) -> None:
    text = SUM.replace("{tensor: x}", "{tensor: x, op: {0: sum, 1: max}}")
    scenario, predicted = loaded(text + "expect: {diagnosis: op_mismatch}\n", tmp_path)
    observed = replace(predicted, backend="gloo", outcome="completes", diagnoses=())
    assert judge(plan(scenario), predicted, observed, "gloo").silently_wrong
    assert not judge(plan(scenario), predicted).silently_wrong


def test_a_run_may_differ_by_what_the_order_of_a_sum_may_change(tmp_path: Path) -> None:
    text = SUM.replace('"full(2, rank + 1)"', '"full(2, where(rank == 0, 1e6, -999999.9))"')
    text = text.replace("where(rank == 0, 1e6, -999999.9)", "1e6 if rank == 0 else -999999.9")
    assert ran(text, tmp_path, writing(0, 0, "x", [0.125, 0.125])).status == "PASSED"
    assert ran(text, tmp_path, writing(0, 0, "x", [2.0, 2.0])).status == "FAILED"


def test_a_backends_own_section_is_judged_by_the_run(tmp_path: Path) -> None:
    text = SUM + "expect:\n  x: [3, 3]\n  gloo: {x: [4, 4]}\n"
    assert checked(text, tmp_path).status == "PASSED"
    changes = [writing(0, rank, "x", [4, 4]) for rank in (0, 1)]
    assert ran(text, tmp_path, *changes).status == "PASSED"
    assert ran(text, tmp_path).status == "FAILED"


def test_a_step_that_raised_is_not_asked_for_its_values(tmp_path: Path) -> None:
    text = RIGHT + "expect:\n  gloo: {outcome: error, raises: unsupported}\n"
    changes = [raising(0, rank, "unsupported") for rank in (0, 1)]
    assert ran(text, tmp_path, *changes).findings == ()


def test_the_last_of_a_ranks_events_may_be_missing_from_the_run(tmp_path: Path) -> None:
    verdict = ran(SUM, tmp_path, at_step(0, 0, lambda event: replace(event, state="running")))
    assert verdict.status == "PASSED"


def test_a_group_created_in_a_loop_is_known_by_the_loops_variable(tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors: {x: "full(1, rank)", first: [0]}
steps:
  - for: {i: "range(2)"}
    steps:
      - new_group: {name: g, group_ranks: "[i + int(first[0]), (i + 1) % 3]"}
      - expect: {"group_rank(g)": {i: 0, "i + 1": 1, else: -1}}
      - all_reduce: {tensor: x, group: g}
      - destroy_process_group: {group: g}
  - compute: {first: "first + 1"}
expect: {x: {0: [1], else: [3]}}
"""
    assert checked(text, tmp_path).status == "PASSED"


@pytest.mark.parametrize("duration", ['"-1"', '"0.1 - rank"', '".inf"', '"1e400"'])
def test_no_rank_sleeps_for_less_than_nothing_or_for_ever(duration: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        checked(f"world_size: 2\nsteps:\n  - sleep: {duration}\n", tmp_path)


ROUNDS = '  - for: {i: "range(2)"}\n    steps:\n'


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("  - {ranks: rank > 5, barrier: {}}\n", "judged.yaml:4:13: no rank takes `barrier`"),
        (
            "  - {name: sum, ranks: rank > 5, compute: {x: x + 1}}\n",
            "judged.yaml:4:24: no rank takes `sum`",
        ),
        (
            "  - all_reduce: {tensor: x, group: g}\n  - new_group: {name: g}\n",
            "judged.yaml:4:5: `all_reduce` uses the group g, which no step before it creates",
        ),
        (
            "  - {ranks: 0, barrier: {group: g}}\n  - new_group: {name: g}\n",
            "judged.yaml:4:16: `barrier` uses the group g, which no step before it creates",
        ),
        (
            ROUNDS + "      - barrier: {}\n      - {ranks: i + 2, barrier: {}}\n",
            "judged.yaml:7:17: no rank takes `barrier`",
        ),
    ],
)
def test_a_step_of_no_rank_has_a_warning(steps: str, says: str, tmp_path: Path) -> None:
    verdict = checked(f"world_size: 2\ntensors: {{x: [1]}}\nsteps:\n{steps}", tmp_path)
    assert verdict.status == "PASSED"
    (warning,) = verdict.warnings
    assert says in warning.sentence


@pytest.mark.parametrize(
    "steps",
    [
        ROUNDS
        + "      - {ranks: i > 0, all_reduce: {tensor: x, group: g}}\n"
        + "      - new_group: {name: g}\n",
        "  - {ranks: 'x[0] > 3', compute: {x: x + 1}}\n",
        "  - {ranks: 1, all_reduce: {tensor: x, group: g}}\n",
    ],
)
def test_a_step_that_some_rank_may_take_has_no_warning(steps: str, tmp_path: Path) -> None:
    text = f"world_size: 2\ngroups: {{h: [0]}}\ntensors: {{x: [1]}}\nsteps:\n{steps}"
    if "new_group" not in steps:
        text = text.replace("h: [0]", "g: [1]")
    assert checked(text, tmp_path).warnings == ()


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        (("unsupported", "unsupported"), "UNSUPPORTED"),
        (("unsupported", "peer_lost"), "UNSUPPORTED"),
        (("peer_lost", "peer_lost"), "FAILED"),
        (("unsupported", "invalid_argument"), "FAILED"),
    ],
)
def test_what_a_backend_lacks_on_one_rank_its_peer_may_only_lose(
    tmp_path: Path, kinds: tuple[str, str], status: str
) -> None:
    changes = [raising(0, rank, kind, f"it is {kind}") for rank, kind in enumerate(kinds)]
    verdict = ran(RIGHT, tmp_path, *changes)
    assert verdict.status == status
    assert verdict.reason == ("it is unsupported" if status == "UNSUPPORTED" else None)
