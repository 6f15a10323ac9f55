"""The corpus: every file is sound, teaches something of its own, and agrees with real Gloo."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import runner
from runner.operations import BY_NAME
from runner.pipeline.attempts import analyse, execute
from runner.vocabulary import DIAGNOSES, REDUCE_OPS

if TYPE_CHECKING:
    from runner.execution import Launcher
    from runner.verdict import Finding

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "scenarios"
FILES = sorted(CORPUS.rglob("*.yaml"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
PARTS = [path for path in FILES if "\ninputs:" in TEXTS[path]]
SCENARIOS = [path for path in FILES if path not in PARTS]


def named(path: Path) -> str:
    return str(path.relative_to(CORPUS))


def told(path: Path, case: str, findings: tuple[Finding, ...], reason: str | None) -> str:
    lines = [f"{named(path)}::{case} {reason or ''}", *(each.prose for each in findings)]
    return "\n".join(lines)


#: the program in which torch would unpickle what a tensor holds: no process runs it
UNPICKLES = "wrong/tensor_where_an_object_is_taken.yaml"


@pytest.mark.parametrize("path", SCENARIOS, ids=named)
def test_checks_green(path: Path) -> None:
    for scenario in runner.load(path):
        verdict = analyse(scenario).verdict
        assert verdict.status == "PASSED", told(
            path, scenario.case, verdict.findings, verdict.reason
        )


@pytest.mark.parametrize("path", SCENARIOS, ids=named)
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_says_what_a_known_backend_makes_of_it(path: Path, backend: str) -> None:
    for scenario in runner.load(path):
        verdict = analyse(scenario, backend=backend).verdict
        assert verdict.status == "PASSED", told(
            path, scenario.case, verdict.findings, verdict.reason
        )
        assert "outcome_open" not in {each.code for each in verdict.warnings}


@pytest.mark.torch
@pytest.mark.parametrize("path", SCENARIOS, ids=named)
def test_runs_green_on_gloo(path: Path, launcher: Launcher) -> None:
    for scenario in runner.load(path):
        verdict = execute(analyse(scenario), launcher, "gloo").verdict
        if scenario.backends == ("nccl",):
            assert verdict.status == "UNSUPPORTED"
            assert verdict.reason == "it is meant for nccl; this run is on gloo"
            continue
        if named(path) == UNPICKLES:
            assert verdict.status == "UNSUPPORTED"
            assert "can run any code" in (verdict.reason or "")
            continue
        assert verdict.status == "PASSED", told(
            path, scenario.case, verdict.findings, verdict.reason
        )


@pytest.mark.parametrize("path", FILES, ids=named)
def test_an_editor_finds_the_schema(path: Path) -> None:
    first = TEXTS[path].partition("\n")[0]
    relative = os.path.relpath(ROOT / "schemas" / "scenario.schema.json", path.parent)
    assert first == f"# yaml-language-server: $schema={relative}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_describes_and_files_itself(path: Path) -> None:
    scenario = yaml.safe_load(TEXTS[path])
    assert len(scenario["description"]) > 40 or path.stem.endswith("_fixed")
    assert path in PARTS or scenario["tags"]


def test_no_two_files_say_the_same() -> None:
    told_by = Counter(yaml.safe_load(text)["description"] for text in TEXTS.values())
    assert [description for description, count in told_by.items() if count > 1] == []


def test_every_operation_is_shown() -> None:
    text = "\n".join(TEXTS.values())
    missing = [name for name in BY_NAME if f"{name}:" not in text and f"op: {name}" not in text]
    assert missing == []


def test_every_reduce_op_is_shown() -> None:
    text = "\n".join(TEXTS.values())
    assert [op for op in (*REDUCE_OPS, "premul_sum") if op not in text] == []


@pytest.mark.parametrize("diagnosis", DIAGNOSES)
def test_every_diagnosis_has_four_programs_beside_their_corrections(diagnosis: str) -> None:
    folder = CORPUS / "wrong" / diagnosis
    wrong = [path for path in folder.glob("*.yaml") if not path.stem.endswith("_fixed")]
    assert len(wrong) >= 4
    for path in wrong:
        assert path.with_stem(f"{path.stem}_fixed").exists()
        stated = yaml.safe_load(TEXTS[path])["expect"]["diagnosis"]
        assert diagnosis in ([stated] if isinstance(stated, str) else stated)
