"""What is remembered of the last run, and what happens to a broken memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.pipeline.history import LastRun, folder_of, read_failed
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from torch_scenarios.verdict import Status


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a project with two files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).touch()
    return tmp_path


def ran(**statuses: Status) -> None:
    results = tuple(
        Result(file=f"{name[0]}.yaml", case=name, verdict=Verdict(status=status))
        for name, status in statuses.items()
    )
    LastRun(folder_of(Path.cwd())).end(Outcome(results=results))


def known() -> list[str]:
    found, notes = read_failed(folder_of(Path.cwd()))
    assert notes == []
    return sorted(case for _, case in found)


def test_what_did_not_pass_is_remembered_until_it_passes() -> None:
    ran(a1="FAILED", a2="PASSED", a3="FLAKY", b1="INCONCLUSIVE", b2="UNSUPPORTED")
    assert known() == ["a1", "a3", "b1"]
    ran(a1="PASSED")
    assert known() == ["a3", "b1"]
    ran(a3="PASSED", b1="PASSED")
    assert known() == []


def test_a_run_of_passes_leaves_no_trace() -> None:
    ran(a1="PASSED")
    assert not Path(".scenario").exists()


def test_a_file_that_was_invalid_is_remembered_as_a_whole_until_its_cases_run() -> None:
    bad = Result(file="a.yaml", case="a.yaml", verdict=Verdict(status="INVALID"))
    LastRun(folder_of(Path.cwd())).end(Outcome(results=(bad,)))
    assert known() == [""]
    ran(a1="PASSED")
    assert known() == []


def test_what_is_remembered_holds_in_every_folder_of_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(a1="FAILED")
    deep = project / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    assert folder_of(Path.cwd()) == project / ".scenario"
    found, _ = read_failed(folder_of(Path.cwd()))
    assert found == {(str(project / "a.yaml"), "a1")}


def test_without_a_project_it_lies_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").unlink()
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    assert folder_of(lonely) in {lonely / ".scenario", *(p / ".scenario" for p in lonely.parents)}
    assert folder_of(lonely) == lonely / ".scenario"


def test_files_that_are_gone_are_forgotten() -> None:
    ran(a1="FAILED", b1="FAILED")
    Path("a.yaml").unlink()
    ran(b2="PASSED")
    assert known() == ["b1"]


def test_the_folder_ignores_itself_and_holds_whole_files() -> None:
    ran(a1="FAILED")
    assert Path(".scenario/.gitignore").read_text(encoding="utf-8").endswith("\n*\n")
    assert sorted(path.name for path in Path(".scenario").iterdir()) == [".gitignore", "last.json"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"format": "scenario-last-run", "version": 2, "failed": []}',
        '{"format": "scenario-last-run", "version": 1}',
        '{"format": "scenario-last-run", "version": 1, "failed": [1]}',
        '{"format": "another", "version": 1, "failed": []}',
    ],
)
def test_a_broken_memory_is_told_and_replaced(content: str) -> None:
    folder = folder_of(Path.cwd())
    folder.mkdir()
    (folder / "last.json").write_text(content, encoding="utf-8")
    found, (note,) = read_failed(folder)
    assert found == frozenset()
    assert "is damaged, or of another version" in note
    ran(a1="FAILED")
    assert known() == ["a1"]


def test_a_folder_that_cannot_be_made_costs_nothing() -> None:
    Path(".scenario").write_text("a file is in the way", encoding="utf-8")
    ran(a1="FAILED")
    assert Path(".scenario").read_text(encoding="utf-8") == "a file is in the way"


def test_what_is_written_names_no_folder_of_the_machine(project: Path) -> None:
    ran(a1="FAILED")
    text = Path(".scenario/last.json").read_text(encoding="utf-8")
    assert json.loads(text)["failed"] == [["a.yaml", "a1"]]
    assert str(project) not in text


@pytest.mark.parametrize("name", ["last.json", ".gitignore"])
@pytest.mark.parametrize("to", ["../mine", "../new"])
def test_nothing_is_written_through_a_link_that_came_with_the_files(name: str, to: str) -> None:
    """The folder may have come with a pull request."""
    Path("mine").write_text("mine", encoding="utf-8")
    Path(".scenario").mkdir()
    Path(".scenario", name).symlink_to(to)
    ran(a1="FAILED")
    assert Path("mine").read_text(encoding="utf-8") == "mine"
    assert not Path("new").exists()


def test_a_link_in_place_of_the_folder_is_left_alone() -> None:
    Path("elsewhere").mkdir()
    Path(".scenario").symlink_to("elsewhere")
    ran(a1="FAILED")
    assert list(Path("elsewhere").iterdir()) == []
    found, (note,) = read_failed(folder_of(Path.cwd()))
    assert found == frozenset()
    assert "is a link or a file, not a folder" in note


def test_a_fifo_in_place_of_what_is_remembered_is_not_waited_for() -> None:
    Path(".scenario").mkdir()
    os.mkfifo(".scenario/last.json")
    ran(a1="FAILED")
    assert read_failed(folder_of(Path.cwd()))[0] == frozenset()
