"""`scenario doctor` on this machine, with the torch that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch]

DOCTOR = [sys.executable, "-P", "-c", "from torch_scenarios.cli import main; main()", "doctor"]


def called(*words: str, limits: str = "") -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'{limits} exec "$@"', "sh", *DOCTOR, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_this_machine_can_run_and_both_reports_say_so(tmp_path: Path) -> None:
    report = tmp_path / "doctor.json"
    done = called("--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text(encoding="utf-8"))
    (host,) = document["hosts"]
    checks = {check["name"]: check for check in host["checks"]}
    assert checks["torch"]["status"] == "ok"
    assert {"gpus", "environment", "name", "interfaces", "memory", "limits"} <= checks.keys()
    assert document["exit_code"] == 0
    for check in host["checks"]:
        assert f"  {check['status']:9} {check['name']:12} {check['message']}" in done.stdout


@pytest.mark.nightly
def test_a_machine_that_cannot_run_ends_with_1_and_what_to_do() -> None:
    done = called("--json", "-", limits="ulimit -S -n 64;")
    assert done.returncode == 1, done.stdout + done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    (found,) = [check for check in host["checks"] if check["status"] == "wrong"]
    assert found["message"].startswith("64 open files are allowed")
    assert found["fix"] == "`ulimit -n 4096`"


@pytest.mark.parametrize(
    "words",
    [
        ["--nnodes", "2"],
        ["--rdzv-endpoint", "host0:29400"],
        ["--nnodes", "2", "--rdzv-endpoint", "fd79::10:29400"],
        ["--nnodes", "2", "--rdzv-endpoint", "host0:0"],
        ["--wait", "-1"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(words: list[str]) -> None:
    done = called(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("scenario doctor: ")
