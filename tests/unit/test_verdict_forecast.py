"""Verdicts on a backend that is known to make something else of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from judging import at_step, checked, loaded
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.model.groups import plan
from torch_scenarios.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

HAZARD = """\
world_size: 2
tensors: {x: "full(2, rank)", y: [-1, -1]}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "1 - rank"}
        - {op: irecv, tensor: y, peer: "1 - rank"}
    as: connected
  - wait: connected
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
    expect: {y: "full(2, 1 - rank)"}
expect:
  outcome: deadlock
  blocked: {0: send to 1, 1: send to 0}
  diagnosis: buffering_hazard
  y: "full(2, 1 - rank)"
"""

RING = """\
world_size: 3
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - isend: {tensor: x, dst: "(rank + 1) % 3"}
    as: sent
  - recv: {tensor: y, src: "(rank - 1) % 3"}
  - wait: sent
"""

TAGS = """\
world_size: 2
tensors: {x: "full(2, rank)", y: [-1, -1]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 1}}
  - {ranks: 1, recv: {tensor: y, src: 0, tag: 2}}
expect:
  outcome: deadlock
  diagnosis: tag_mismatch
"""


def ran_as(
    trace: Trace, text: str, folder: Path, *changes: Callable[[Trace], Trace], backend: str = "nccl"
) -> Verdict:
    scenario, predicted = loaded(text, folder)
    observed = replace(trace, backend=backend, diagnoses=(), waits=(), open=(), because=())
    for change in changes:
        observed = change(observed)
    return judge(plan(scenario), predicted, observed)


def forecast(text: str, folder: Path) -> Trace:
    return loaded(text, folder)[1].on("nccl")


def everywhere(text: str, folder: Path) -> Trace:
    return loaded(text, folder)[1]


def test_a_hazard_that_completes_as_predicted_passes(tmp_path: Path) -> None:
    verdict = ran_as(forecast(HAZARD, tmp_path), HAZARD, tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())
    assert verdict.predicted is not None
    assert verdict.predicted.outcome == "completes"
    (note,) = verdict.notes
    assert note.startswith("on nccl, as predicted: completes, because `send to 1` (judged.yaml:10)")


def test_a_hazard_that_stands_although_it_need_not_passes_too(tmp_path: Path) -> None:
    verdict = ran_as(everywhere(HAZARD, tmp_path), HAZARD, tmp_path)
    assert (verdict.status, verdict.findings) == ("PASSED", ())
    assert any(note.startswith("on nccl it was predicted to complete") for note in verdict.notes)


def test_a_hazard_stays_one_where_nothing_buffers(tmp_path: Path) -> None:
    verdict = ran_as(forecast(HAZARD, tmp_path), HAZARD, tmp_path, backend="gloo")
    assert verdict.status == "FAILED"
    assert "the run's outcome is completes; you expect deadlock" in verdict.findings[0].prose


def test_what_a_backend_makes_of_a_fault_is_compared_value_by_value(tmp_path: Path) -> None:
    wrong = at_step(3, 0, lambda event: replace(event, writes={"y": np.array([7, 7], np.float32)}))
    verdict = ran_as(forecast(HAZARD, tmp_path), HAZARD, tmp_path, wrong)
    assert [(f.witness, f.code, f.ranks) for f in verdict.findings] == [
        ("backend", "value_differs", (0,))
    ]


def test_a_hazard_that_nobody_states_is_none_the_less_one(tmp_path: Path) -> None:
    text = HAZARD.replace("  diagnosis: buffering_hazard\n", "")
    verdict = ran_as(forecast(text, tmp_path), text, tmp_path)
    assert [finding.code for finding in verdict.findings] == ["diagnosis_undeclared"]


def test_a_right_program_that_a_backend_brings_to_a_halt_fails_with_the_cause(
    tmp_path: Path,
) -> None:
    verdict = ran_as(forecast(RING, tmp_path), RING, tmp_path)
    assert verdict.status == "FAILED"
    (finding,) = [each for each in verdict.findings if each.code == "outcome_differs"]
    assert finding.witness == "backend"
    assert "waits on the host for its receive" in finding.because[0]


def test_an_author_may_state_what_a_backend_makes_of_a_right_program(tmp_path: Path) -> None:
    text = RING + "expect: {nccl: {outcome: deadlock, blocked: {else: isend}}}\n"
    assert ran_as(forecast(text, tmp_path), text, tmp_path).status == "PASSED"
    assert ran_as(everywhere(text, tmp_path), text, tmp_path, backend="gloo").status == "PASSED"
    assert checked(text, tmp_path).status == "PASSED"


def test_a_halt_that_was_predicted_and_did_not_come_is_no_fault(tmp_path: Path) -> None:
    verdict = ran_as(everywhere(RING, tmp_path), RING, tmp_path)
    assert verdict.status == "PASSED"
    assert any("was predicted to end in a deadlock" in note for note in verdict.notes)


def test_the_analysis_alone_tells_that_a_backend_will_stand(tmp_path: Path) -> None:
    scenario, predicted = loaded(RING, tmp_path)
    verdict = judge(plan(scenario), predicted, backend="nccl")
    assert verdict.status == "FAILED"
    assert verdict.findings[0].prose.startswith("the program's outcome on nccl is deadlock")
    assert judge(plan(scenario), predicted, backend="gloo").status == "PASSED"
    assert judge(plan(scenario), predicted).status == "PASSED"


def test_a_section_that_contradicts_the_forecast_is_found_without_a_run(tmp_path: Path) -> None:
    text = RING + "expect: {nccl: {outcome: completes}}\n"
    verdict = checked(text, tmp_path)
    assert verdict.status == "FAILED"
    assert "on nccl is deadlock" in verdict.findings[0].prose


def test_a_section_may_state_that_tags_are_ignored(tmp_path: Path) -> None:
    text = TAGS + "  nccl: {outcome: completes, y: {1: [0, 0], else: unchanged}}\n"
    assert checked(text, tmp_path).status == "PASSED"
    assert ran_as(forecast(text, tmp_path), text, tmp_path).status == "PASSED"
    assert ran_as(forecast(TAGS, tmp_path), TAGS, tmp_path).status == "PASSED"


@pytest.mark.parametrize("outcome", ["deadlock", "completes", "error"])
def test_what_a_forecast_leaves_open_may_come(tmp_path: Path, outcome: str) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect:
  outcome: deadlock
  blocked: {0: send to 1, 1: send to 0}
  diagnosis: buffering_hazard
"""
    found = forecast(text, tmp_path)
    assert {found.outcome, *found.open} == {"deadlock", "completes", "error", "crash"}
    at_recv = replace(found.ranks[0].events[-1], index=1, label="recv from 1")
    ending = {"deadlock": "blocked", "completes": "finished", "error": "raised"}[outcome]
    ranks = tuple(replace(rank, ending=ending, events=(at_recv,)) for rank in found.ranks)
    run = replace(found, outcome=outcome, ranks=ranks)
    assert ran_as(run, text, tmp_path).status == "PASSED"
    assert ran_as(run, text, tmp_path, backend="gloo").status == "FAILED"


def test_check_asks_for_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    told = CliRunner().invoke(cli, ["check", "--strict", "--backend", "nccl", str(path)])
    assert told.exit_code == 1
    output = " ".join(told.output.split())
    assert "warning[backend_lacks]: it needs `crossing_messages`" in output
    assert "there it is predicted to end in a deadlock, because" in output
    assert CliRunner().invoke(cli, ["check", "--strict", str(path)]).exit_code == 0


def test_check_asks_nothing_of_a_backend_for_which_a_file_is_not_meant(tmp_path: Path) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(RING + "backends: [gloo]\n", encoding="utf-8")
    assert CliRunner().invoke(cli, ["check", "--backend", "nccl", str(path)]).exit_code == 0


def test_a_deadlock_may_stand_where_the_backend_is_known_to_stand(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - irecv: {tensor: y, src: "1 - rank"}
    as: coming
  - wait: coming
  - send: {tensor: x, dst: "1 - rank"}
expect:
  outcome: deadlock
  blocked: {else: wait coming}
  diagnosis: circular_wait
"""
    stands = forecast(text, tmp_path)
    assert [rank.events[-1].label for rank in stands.ranks] == ["irecv from 1", "irecv from 0"]
    assert ran_as(stands, text, tmp_path).status == "PASSED"
    assert ran_as(everywhere(text, tmp_path), text, tmp_path).status == "PASSED"
    assert ran_as(stands, text, tmp_path, backend="gloo").status == "FAILED"


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ('recv: {tensor: y, src: "-rank"}', "predicted to end in an error"),
        ("{ranks: 1, fault: exit}", "predicted to end in a crash"),
    ],
)
def test_what_lies_behind_a_hazard_may_raise_or_end_a_rank(
    tmp_path: Path, then: str, told: str
) -> None:
    text = HAZARD.split("  - recv", maxsplit=1)[0] + f"  - {then}\nexpect: {{outcome: deadlock}}\n"
    scenario, predicted = loaded(text, tmp_path)
    verdict = judge(plan(scenario), predicted, backend="nccl")
    assert any(told in note for note in verdict.notes)


def test_a_run_that_ends_as_a_forecast_leaves_open_is_told_so(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank)", y: [-1]}
steps:
  - ranks: 0
    batch_isend_irecv:
      p2p_op_list: [{op: irecv, tensor: y, peer: 1}, {op: isend, tensor: x, peer: 1}]
    as: both
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - {ranks: 1, send: {tensor: x, dst: 0}}
  - {ranks: 0, wait: both}
"""
    trace = replace(forecast(text, tmp_path), outcome="error")
    verdict = ran_as(trace, text, tmp_path)
    assert verdict.status == "FAILED"
    assert any("for answers" in each for finding in verdict.findings for each in finding.because)
    assert any(note.startswith("on nccl, as it may: error") for note in verdict.notes)
