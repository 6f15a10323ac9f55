"""What `scenario check` proved is proved again only where something changed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.pipeline import history, run

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
world_size: 2
parameters: {by: 1}
matrix: {n: [1, 2]}
tensors: {x: "[rank * n * by]"}
steps: [{all_reduce: {tensor: x}}]
expect: {x: "[n * by]"}
"""
WRONG = GOOD.replace("[n * by]", "[7]")
#: nothing is known of the rest, which is a warning
WARNS = GOOD.replace("matrix", "truncated: all\nmatrix")
PART = "inputs: {tensor: null}\nsteps: [{all_reduce: {tensor: tensor}}]\n"
USES = """\
world_size: 2
tensors: {x: [1]}
steps: [{use: {file: part.yaml, with: {tensor: x}}}]
expect: {x: [2]}
"""


class Checks:
    """Checks a folder again and again, and counts what is analysed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.analysed = 0
        self.output = ""
        analyse = run.analyse

        def count(*arguments: Any, **options: Any) -> Any:
            self.analysed += 1
            return analyse(*arguments, **options)

        monkeypatch.setattr(run, "analyse", count)
        # one core forks nothing: what is counted is counted here
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        monkeypatch.setattr(history, "PROVED", "proved.json")
        monkeypatch.chdir(folder)

    def write(self, **texts: str) -> None:
        """Write files of these names."""
        for name, text in texts.items():
            (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def check(self, *arguments: str) -> tuple[int, int]:
        """Return the exit code, and how many cases were analysed."""
        self.analysed = 0
        done = CliRunner().invoke(cli, ["check", ".", *arguments])
        self.output = done.output
        return done.exit_code, self.analysed


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(tmp_path, monkeypatch)


def test_what_did_not_change_is_not_analysed_again(checks: Checks) -> None:
    checks.write(a=GOOD, b=GOOD)
    assert checks.check() == (0, 4)
    assert "note:" not in checks.output
    assert checks.check() == (0, 0)
    assert "4 passed" in checks.output
    assert "4 cases are of files that passed before and did not change" in checks.output


def test_what_changed_is_analysed_with_all_cases_of_its_file(checks: Checks) -> None:
    checks.write(a=GOOD, b=GOOD)
    checks.check()
    checks.write(b=WRONG)
    assert checks.check() == (1, 2)
    assert "2 passed, 2 failed" in checks.output
    checks.write(b=GOOD)  # as it was when it passed
    assert checks.check() == (0, 0)


def test_a_file_that_failed_is_analysed_again(checks: Checks) -> None:
    checks.write(a=WRONG)
    assert checks.check() == (1, 2)
    assert checks.check() == (1, 2)


@pytest.mark.parametrize(
    ("texts", "again"), [({"a": WARNS}, 2), ({"a": USES, "part": PART}, 1), ({"a": GOOD}, 0)]
)
def test_what_warns_or_uses_another_file_is_analysed_again(
    checks: Checks, texts: dict[str, str], again: int
) -> None:
    checks.write(**texts)
    checks.check()
    assert checks.check() == (0, again)


def test_a_used_file_that_changed_is_told(checks: Checks) -> None:
    checks.write(a=USES, part=PART)
    assert checks.check()[0] == 0
    checks.write(part=PART.replace("tensor: tensor", "tensor: tensor, op: product"))
    assert checks.check()[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-cache"],
        ["-v"],
        ["--set", "by=2"],
        ["--limit", "seconds=50"],
        ["--backend", "nccl"],
        ["--torch", "2.6"],
        ["-k", "a"],
        ["--shard", "1/1"],
    ],
)
def test_another_question_is_answered_anew(checks: Checks, arguments: list[str]) -> None:
    checks.write(a=GOOD)
    checks.check()
    assert checks.check(*arguments) == (0, 2)
    assert checks.check() == (0, 0)


@pytest.mark.parametrize("change", ["code", "numpy", "name"])
def test_other_code_or_another_name_proves_anew(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    checks.write(a=GOOD)
    checks.check()
    if change == "code":
        code = (*history.list_code(), ("new.py", 1, 1))
        monkeypatch.setattr(history, "list_code", lambda: code)
    elif change == "numpy":
        monkeypatch.setattr("numpy.__version__", "99.0")
    else:
        (checks.folder / "a.yaml").rename(checks.folder / "b.yaml")
    assert checks.check() == (0, 2)
    assert checks.check() == (0, 0)


@pytest.mark.parametrize("text", ["", "{", '{"format": "other", "version": 1, "files": {}}', "[]"])
def test_what_is_damaged_is_as_if_it_were_empty(checks: Checks, text: str) -> None:
    checks.write(a=GOOD)
    checks.check()
    (checks.folder / ".scenario" / "proved.json").write_text(text, encoding="utf-8")
    assert checks.check() == (0, 2)
    assert checks.check() == (0, 0)


def test_nothing_is_read_or_written_through_a_link(checks: Checks, tmp_path: Path) -> None:
    checks.write(a=GOOD)
    checks.check()
    kept = checks.folder / ".scenario" / "proved.json"
    elsewhere = tmp_path / "elsewhere.txt"
    kept.replace(elsewhere)
    before = elsewhere.read_text(encoding="utf-8")
    kept.symlink_to(elsewhere)
    assert checks.check() == (0, 2)
    assert elsewhere.read_text(encoding="utf-8") == before


def test_files_that_are_no_longer_met_go_first(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST", 1)
    checks.write(a=GOOD)
    checks.check()
    checks.write(a=GOOD + "description: another\n")
    checks.check()
    kept = json.loads((checks.folder / ".scenario" / "proved.json").read_text(encoding="utf-8"))
    assert len(kept["files"]) == 1
    assert checks.check() == (0, 0)


def test_the_first_failure_ends_a_check_and_what_passed_before_it_is_kept(checks: Checks) -> None:
    checks.write(a=GOOD, b=WRONG, c=GOOD)
    assert checks.check("-x") == (1, 3)
    assert checks.check() == (1, 4)  # a is known, c was not reached
