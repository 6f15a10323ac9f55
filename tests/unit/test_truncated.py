"""`truncated` and `at`: a program that goes on beyond what is written, and its recorded places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.results import Analysis

RING = """\
world_size: 4
tensors: {x: "full(2, rank)"}
steps:
  - send: {tensor: x, dst: "(rank + 1) % world_size"}
"""
RECEIVE = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, recv: {tensor: x, src: 1}}
"""
COLLECTIVE = """\
world_size: 3
tensors: {x: [1, 2]}
steps:
  - {ranks: [0, 1], all_reduce: {tensor: x}}
"""
UNTAKEN = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, isend: {tensor: x, dst: 1}, as: h}
"""
DROPPED = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, isend: {tensor: x, dst: 1}}
"""
TAGS = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 8}, at: ring.py:11}
  - {ranks: 1, recv: {tensor: x, src: 0, tag: 1}, at: ring.py:14}
"""
KINDS = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, all_reduce: {tensor: x}, at: evaluate.py:8}
  - {ranks: 1, barrier: {}, at: train.py:16}
"""
CREATION = """\
world_size: 2
steps:
  - {ranks: 0, new_group: {name: g, group_ranks: [0, 1]}}
"""
BOTH_WAYS = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, all_reduce: {tensor: x}}
  - {ranks: 1, recv: {tensor: x, src: 0}}
"""
ANYONE = """\
world_size: 3
tensors: {x: [1, 2]}
steps:
  - {ranks: 0, recv: {tensor: x}}
  - {ranks: 1, recv: {tensor: x, src: 0}}
"""


def scenarios(text: str) -> tuple[Scenario, ...]:
    return load_content(Path("case.yaml"), text.encode())


def checked(text: str) -> Analysis:
    (scenario,) = scenarios(text)
    return analyse(scenario)


def diagnoses(analysis: Analysis) -> list[str]:
    assert analysis.predicted is not None
    return [diagnosis.name for diagnosis in analysis.predicted.diagnoses]


def outcome(analysis: Analysis) -> str:
    assert analysis.predicted is not None
    return analysis.predicted.outcome


@pytest.mark.parametrize(
    ("text", "whole", "ranks"),
    [
        (RECEIVE, "unmatched_recv", "[1]"),
        (COLLECTIVE, "missing_participant", "[2]"),
        (UNTAKEN, "unmatched_send", "all"),
        (CREATION, "missing_participant", "[1]"),
    ],
)
def test_nothing_is_derived_from_what_lies_beyond(text: str, whole: str, ranks: str) -> None:
    assert whole in diagnoses(checked(text))
    analysis = checked(f"{text}truncated: {ranks}\n")
    assert diagnoses(analysis) == []
    assert outcome(analysis) == "completes"
    assert analysis.verdict.status == "PASSED"
    assert [each.code for each in analysis.verdict.warnings] == ["truncated"]


@pytest.mark.parametrize("name", ["unmatched_send", "missing_wait"])
def test_work_that_is_kept_is_waited_for_beyond_and_dropped_work_is_not(name: str) -> None:
    assert name in diagnoses(checked(UNTAKEN))
    assert diagnoses(checked(f"{UNTAKEN}truncated: all\n")) == []
    assert diagnoses(checked(f"{DROPPED}truncated: all\n")) == ["missing_wait"]


def test_another_rank_that_ends_is_missed_all_the_same() -> None:
    assert diagnoses(checked(f"{COLLECTIVE}truncated: [0, 1]\n")) == ["missing_participant"]
    assert diagnoses(checked(f"{RECEIVE}truncated: [0]\n")) == ["unmatched_recv"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (RING, "circular_wait"),
        (TAGS, "tag_mismatch"),
        (KINDS, "call_mismatch"),
        (BOTH_WAYS, "circular_wait"),
    ],
)
def test_ranks_that_wait_for_one_another_are_found_wherever_they_go(text: str, name: str) -> None:
    analysis = checked(f"{text}truncated: all\n")
    assert diagnoses(analysis) == [name]
    assert outcome(analysis) == "deadlock"
    assert analysis.verdict.status == "FAILED"


def test_who_waits_for_anyone_may_be_freed_from_beyond() -> None:
    analysis = checked(f"{ANYONE}truncated: all\n")
    assert diagnoses(analysis) == []
    assert outcome(analysis) == "completes"


def test_a_deadlock_is_open_where_a_rank_waits_for_what_lies_beyond() -> None:
    stated = f"{RECEIVE}truncated: [1]\nexpect: {{outcome: deadlock}}\n"
    assert checked(stated).verdict.status == "PASSED"
    analysis = checked(stated)
    assert analysis.predicted is not None
    assert [rank.ending for rank in analysis.predicted.ranks] == ["possibly_blocked", "finished"]


@pytest.mark.parametrize(
    ("written", "ranks"),
    [
        ("all", {0, 1, 2, 3}),
        ("1", {1}),
        ("[1, 3]", {1, 3}),
        ('"rank > 1"', {2, 3}),
        ('"range(world_size - 1)"', {0, 1, 2}),
        ("[]", set()),
    ],
)
def test_the_ranks_are_selected_as_in_ranks(written: str, ranks: set[int]) -> None:
    (scenario,) = scenarios(f"{RING}truncated: {written}\n")
    assert scenario.truncated == ranks


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("[5]", "rank_out_of_range"),
        ("-1", "bad_selector"),
        ("1.5", "wrong_type"),
        ("{0: 1}", "wrong_type"),
        ('"nowhere"', "unknown_name"),
        ('"x[0] > 1"', "not_constant"),
    ],
)
def test_what_selects_no_rank_is_invalid(written: str, code: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenarios(f"{RING}truncated: {written}\n")
    assert code in [problem.code for problem in raised.value.problems]


def test_a_rank_beyond_a_world_that_varies_is_passed_over() -> None:
    text = RING.replace("world_size: 4", "matrix: {n: [2, 4]}\nworld_size: n")
    assert [each.truncated for each in scenarios(f"{text}truncated: [3]\n")] == [set(), {3}]


def test_findings_name_the_recorded_place_of_every_side() -> None:
    analysis = checked(f"{KINDS}truncated: all\n")
    told = " ".join(" ".join(finding.because) for finding in analysis.verdict.findings)
    assert "(evaluate.py:8, case.yaml:4)" in told
    assert "(train.py:16, case.yaml:5)" in told


def test_a_place_may_differ_by_rank() -> None:
    text = RING + "    at: {0: a.py:1, else: b.py:2}\ntruncated: all\n"
    told = " ".join(" ".join(finding.because) for finding in checked(text).verdict.findings)
    assert "rank 0 waits in `send to 1` (a.py:1, case.yaml:4)" in told
    assert "rank 1 waits in `send to 2` (b.py:2, case.yaml:4)" in told


def test_results_and_the_terminal_name_the_place(tmp_path: Path) -> None:
    file, results = tmp_path / "kinds.yaml", tmp_path / "results.json"
    file.write_text(f"{KINDS}truncated: all\n", encoding="utf-8")
    said = CliRunner().invoke(cli, ["check", str(file), "--json", str(results)])
    assert "kinds.yaml:4:16 (at evaluate.py:8)" in said.output
    (result,) = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert result["problems"][0]["at"] == "evaluate.py:8"


@pytest.mark.parametrize("written", ["19", "[a.py:1]", '""', "{0: 19}"])
def test_a_place_is_words(written: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenarios(f"{RING}    at: {written}\n")
    assert "wrong_type" in [problem.code for problem in raised.value.problems]


def test_the_place_of_a_used_part_is_that_of_its_steps(tmp_path: Path) -> None:
    part = "inputs: [t]\nsteps:\n  - barrier: {}\n  - {barrier: {}, at: own.py:3}\n"
    (tmp_path / "part.yaml").write_text(part, encoding="utf-8")
    text = "world_size: 2\nsteps:\n  - {use: {file: part.yaml, with: {t: 1}}, at: train.py:7}\n"
    (scenario,) = load_content(tmp_path / "case.yaml", text.encode())
    assert [step.at for step in scenario.steps] == ["train.py:7", "own.py:3"]
