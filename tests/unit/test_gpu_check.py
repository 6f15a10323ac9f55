"""The ten minutes on GPUs: what a question keeps, and the page that comes of it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.gpu import check, machine

if TYPE_CHECKING:
    from pathlib import Path

CASE = {
    "case": "left_alone",
    "verdict": "FAILED",
    "reason": None,
    "problems": [{"message": "a | b"}],
    "observed": {"blocked": {"0": "wait sum"}},
    "duration_s": 0.5,
    "notes": [],
}


def test_a_question_keeps_its_commands_with_what_was_set_for_them() -> None:
    row = check.Row(question="how?", place="N1")
    around = {**os.environ, "NCCL_RUNTIME_CONNECT": "1"}
    ran = check.run(row, [sys.executable, "-c", "print('said')"], around, 60)
    assert (ran.code, ran.output) == (0, "said\n")
    assert row.commands == [f"NCCL_RUNTIME_CONNECT=1 {sys.executable} -c print('said')"]
    assert (row.codes, row.output) == ([0], ["said"])


def test_a_question_that_takes_too_long_is_cut_short() -> None:
    row = check.Row(question="how long?", place="")
    ran = check.run(row, [sys.executable, "-c", "import time; time.sleep(600)"], os.environ, 1)
    assert ran.code is None
    assert check.zip_codes(asdict(row))[0][1] == "cut short"


def test_a_tool_that_is_not_installed_is_said() -> None:
    row = check.Row(question="which GPUs?", place="")
    assert check.run(row, ["no-such-tool-smi"], os.environ, 1).code is None
    assert row.output == ["no-such-tool-smi is not installed"]
    assert check.page({"machine": {}, "rows": [asdict(row)]})


def test_the_page_has_each_case_with_where_ranks_are_blocked(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"results": [CASE]}), encoding="utf-8")
    cases = check.verdicts(results)
    assert check.short(cases) == "left_alone FAILED"
    row = check.Row(question="which?", place="N1", commands=["run"], codes=[1])
    row.found["NCCL_RUNTIME_CONNECT=0"] = {"seconds": 1.5, "cases": cases}
    text = check.page({"machine": {"torch": "2.14.1"}, "rows": [asdict(row)]})
    assert "- torch: 2.14.1\n" in text
    assert "## N1: which?" in text
    assert "    run  (exit code 1)" in text
    assert "| left_alone | FAILED | 0: wait sum | a / b |" in text


def test_a_command_without_results_is_said() -> None:
    assert check.short([]) == "no results"


def test_a_question_that_fails_says_so_and_the_next_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"torch": "2.14.1", "nccl": "2.30.7", "gpus": "8"}
    monkeypatch.setattr(machine, "machine", lambda: here)

    def fail(it: check.Check) -> None:
        it.ask("does this fail?", "N1")
        message = "no such device"
        raise OSError(message)

    def work(it: check.Check) -> None:
        it.ask("does this work?", "N2")

    monkeypatch.setattr(check, "QUESTIONS", (fail, work))
    assert check.main(["-o", str(tmp_path / "out")]) == check.GREEN
    document = json.loads((tmp_path / "out" / "gpu-check.json").read_text())
    assert document["command"].startswith("python -m tests.gpu.check -o ")
    first, second = document["rows"]
    assert first["output"][-1] == "OSError: no such device"
    assert (second["question"], second["output"]) == ("does this work?", [])
    assert "no such device" in capsys.readouterr().out


def test_without_a_gpu_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"torch": "2.13.0+cpu", "nccl": "none", "gpus": "0"}
    monkeypatch.setattr(machine, "machine", lambda: here)
    assert check.main(["-o", str(tmp_path / "out")]) == check.NO_MACHINE
    assert "nothing was asked" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("nccl", "words"),
    [("none", "torch 2.13.0+cpu has no NCCL."), ("2.28.9", "torch 2.13.0+cpu sees no GPU.")],
)
def test_a_machine_without_a_gpu_is_told_what_it_lacks(nccl: str, words: str) -> None:
    assert words in check.why_not({"torch": "2.13.0+cpu", "nccl": nccl, "gpus": "0"})
