"""The corpus: every file is sound, teaches something of its own, and agrees with real Gloo."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from sampling import sampled, strides

import torch_scenarios
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.vocabulary import DIAGNOSES, REDUCE_OPS

if TYPE_CHECKING:
    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.verdict import Finding

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "scenarios"
FILES = sorted(CORPUS.rglob("*.yaml"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
PARTS = [path for path in FILES if "\ninputs:" in TEXTS[path]]
SCENARIOS = [path for path in FILES if path not in PARTS]
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())
#: libyaml's, where PyYAML has it
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def named(path: Path) -> str:
    return str(path.relative_to(CORPUS))


def told(path: Path, case: str, findings: tuple[Finding, ...], reason: str | None) -> str:
    lines = [f"{named(path)}::{case} {reason or ''}", *(each.prose for each in findings)]
    return "\n".join(lines)


#: the program in which torch would unpickle what a tensor holds: no process runs it
UNPICKLES = "wrong/tensor_where_an_object_is_taken.yaml"


def backends_of(scenario: Scenario, number: int, stride: int) -> tuple[str | None, ...]:
    """Return what a case is checked for: one file in three for NCCL, one in `stride` for others."""
    every = () if number % stride else (None, "gloo")
    is_for_nccl = "nccl" in (scenario.backends or ()) or number % min(stride, 3) == 0
    return ("nccl", *every) if is_for_nccl else every


@pytest.mark.parametrize("stride", strides(12))
@pytest.mark.parametrize("folder", sampled(list(FOLDERS), 2))
def test_checks_green_and_says_what_a_known_backend_makes_of_it(folder: str, stride: int) -> None:
    """The run of the corpus checks each file for Gloo."""
    wrong = []
    files = [path for path in SCENARIOS if named(path).startswith(f"{folder}/")]
    for number, path in enumerate(files):
        for scenario in torch_scenarios.load(path):
            for backend in backends_of(scenario, number, stride):
                verdict = analyse(scenario, backend=backend).verdict
                if verdict.status != "PASSED":
                    wrong.append(told(path, scenario.case, verdict.findings, verdict.reason))
                elif backend and "outcome_open" in {each.code for each in verdict.warnings}:
                    wrong.append(f"{named(path)}::{scenario.case} is left open on {backend}")
    assert not wrong, "\n".join(wrong)


def judged_on_gloo(path: Path, case: str, status: str, reason: str | None) -> str | None:
    """Return what is wrong with a result of the corpus on Gloo."""
    (scenario,) = (each for each in torch_scenarios.load(path) if each.case == case)
    found = status, reason or ""
    if scenario.backends == ("nccl",):
        right = found == ("UNSUPPORTED", "it is meant for nccl; this run is on gloo")
    elif named(path) == UNPICKLES:
        right = status == "UNSUPPORTED" and "can run any code" in found[1]
    else:
        right = status == "PASSED"
    return None if right else f"{named(path)}::{case} {status} {reason}"


@pytest.mark.torch
@pytest.mark.parametrize("path", sampled(SCENARIOS, 60), ids=named)
def test_runs_green_on_gloo(path: Path, launcher: Launcher) -> None:
    for scenario in torch_scenarios.load(path):
        verdict = execute(analyse(scenario), launcher, "gloo").verdict
        wrong = judged_on_gloo(path, scenario.case, verdict.status, verdict.reason)
        assert wrong is None, f"{wrong}\n{told(path, scenario.case, verdict.findings, None)}"


def test_the_run_of_the_corpus_is_green_and_whole() -> None:
    """.ci/run calls `scenario run scenarios` beside the tests, and then this one, with the results.

    It may say two files: the second is there if something was run once more.
    """
    files = os.environ.get("CORPUS_RESULTS")
    if files is None:
        pytest.skip("no CORPUS_RESULTS: it names what `scenario run scenarios --json` has written")
    runs = [path for path in map(Path, files.split(os.pathsep)) if path.exists()]
    read = [json.loads(path.read_text(encoding="utf-8"))["results"] for path in runs]
    results = {(each["file"], each["case"]): each for found in read for each in found}.values()
    assert results
    wrong = [
        judged_on_gloo(ROOT / each["file"], each["case"], each["verdict"], each.get("reason"))
        for each in results
    ]
    assert [each for each in wrong if each] == []
    assert {ROOT / each["file"] for each in results} == set(SCENARIOS)


def test_an_editor_finds_the_schema() -> None:
    for path in FILES:
        first = TEXTS[path].partition("\n")[0]
        relative = os.path.relpath(ROOT / "schemas" / "scenario.schema.json", path.parent)
        assert first == f"# yaml-language-server: $schema={relative}", path


def test_every_file_describes_and_files_itself_in_words_of_its_own() -> None:
    told_by: Counter[str] = Counter()
    for path in FILES:
        scenario = yaml.load(TEXTS[path], Loader=SafeLoader)  # noqa: S506 -- it is a safe one
        assert len(scenario["description"]) > 40 or path.stem.endswith("_fixed"), path
        assert path in PARTS or scenario["tags"], path
        told_by[scenario["description"]] += 1
    assert [description for description, count in told_by.items() if count > 1] == []


def test_every_reduce_op_is_shown() -> None:
    text = "\n".join(TEXTS.values())
    assert [op for op in (*REDUCE_OPS, "premul_sum") if op not in text] == []


@pytest.mark.parametrize("diagnosis", DIAGNOSES)
def test_every_diagnosis_has_four_programs_beside_their_corrections(diagnosis: str) -> None:
    folder = CORPUS / "wrong" / diagnosis
    wrong = [path for path in folder.glob("*.yaml") if not path.stem.endswith("_fixed")]
    assert len(wrong) >= 4, f"{folder.relative_to(ROOT)} needs four files, each with its _fixed"
    for path in wrong:
        assert path.with_stem(f"{path.stem}_fixed").exists(), path
        stated = yaml.safe_load(TEXTS[path])["expect"]["diagnosis"]
        assert diagnosis in ([stated] if isinstance(stated, str) else stated)
