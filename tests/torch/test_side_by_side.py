"""Cases on several launches of real Gloo: what comes of each is what comes of it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]

GOOD = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [2]}}]\n"
STUCK = "world_size: 2\nsteps: [{ranks: 0, barrier: {}}]\n"
MEANT = "expect: {outcome: deadlock, diagnosis: missing_participant}\n"
KILLED = "world_size: 2\nsteps: [{ranks: 1, fault: kill}, {barrier: {}}]\n"
#: case -> what it is, and what comes of it
CASES = {
    "a_late": ("world_size: 2\nsteps: [{sleep: 1s}, {barrier: {}}]\n", "PASSED", "completes"),
    "b_good": (GOOD, "PASSED", "completes"),
    "c_hang": (STUCK + MEANT, "PASSED", "deadlock"),
    "d_killed": (f"{KILLED}expect: {{outcome: crash}}\n", "PASSED", "crash"),
    "e_good": (GOOD, "PASSED", "completes"),
    "f_stuck": (STUCK, "FAILED", None),
    "g_good": (GOOD, "PASSED", "completes"),
}


def ran(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(
        cli, ["run", "--no-cache", *arguments, "--json", "-"], catch_exceptions=False
    )
    return done.exit_code, json.loads(done.stdout)["results"]


def test_each_case_comes_to_what_it_comes_to_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (text, _, _) in CASES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, results = ran("-j2")
    assert code == 1
    assert {
        each["case"]: (each["verdict"], (each["observed"] or {}).get("outcome")) for each in results
    } == {name: (verdict, outcome) for name, (_, verdict, outcome) in CASES.items()}
    assert [each["case"] for each in results] == sorted(CASES)
    late = next(each for each in results if each["case"] == "a_late")
    assert late["duration_s"] >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("folder", ["groups", "p2p", "wrong", "faults"])
def test_a_folder_has_the_same_verdicts_with_any_number_of_launches(folder: str) -> None:
    alone = ran(str(ROOT / "scenarios" / folder))
    assert alone[1]
    for jobs in ("2", "3"):
        beside = ran(str(ROOT / "scenarios" / folder), "-j", jobs)
        assert beside[0] == alone[0]
        assert [(each["case"], each["verdict"]) for each in beside[1]] == [
            (each["case"], each["verdict"]) for each in alone[1]
        ]
