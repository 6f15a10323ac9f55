"""Which files are read: regular ones inside their project, and nothing that a link leads to."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.files import read_file
from torch_scenarios.language import discover, load
from torch_scenarios.limits import Limits
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.selection import load_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = "world_size: 2\nsteps: [barrier: {}]\n"
SECRET = "root:x:0:0:root:/root:/bin/bash\n"  # noqa: S105 -- of this test alone
FOLLOW = Limits(follow_links=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project's folder, beside which a secret lies."""
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    (tmp_path / "outside.yaml").write_text(TEXT, encoding="utf-8")
    folder = tmp_path / "project"
    (folder / "inner").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    (folder / "right.yaml").write_text(TEXT, encoding="utf-8")
    return folder


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


#: what may stand in a scenario's place -> how it is made, the code, what is said
STRANGE = {
    "a_link_to_a_secret": (link("../../secret"), "link_outside_project", "leads out"),
    "a_link_to_a_password_file": (link("/etc/passwd"), "link_outside_project", "leads out"),
    "a_link_to_a_scenario": (link("../../outside.yaml"), "link_outside_project", "leads out"),
    "a_link_to_a_device": (link("/dev/zero"), "unreadable_file", "a device"),
    "a_link_to_a_folder": (link(".."), "unreadable_file", "a folder"),
    "a_fifo": (os.mkfifo, "unreadable_file", "a FIFO"),
    "a_socket": (listening, "unreadable_file", "a socket"),
    "a_folder": (lambda path: path.mkdir(), "unreadable_file", "a folder"),
}
strange = pytest.mark.parametrize("kind", STRANGE)


def read(*paths: Path, limits: Limits = Limits()) -> tuple[list[str], list[Problem], list[Problem]]:  # noqa: B008 -- frozen
    """Return the names of the cases, the problems of invalid files, the warnings."""
    found = load_all(Selection(paths=tuple(map(str, paths)), limits=limits))
    problems = [problem for result in found.invalid for problem in result.verdict.problems]
    return [each.name for each in found.scenarios], problems, list(found.warnings)


@strange
def test_what_is_named_and_no_file_of_the_project_is_invalid(kind: str, project: Path) -> None:
    make, code, says = STRANGE[kind]
    path = project / "inner" / "x.yaml"
    make(path)
    cases, (problem,), warnings = read(path)
    assert (cases, problem.code, warnings) == ([], code, [])
    assert says in problem.message
    assert "bash" not in str(problem)


@strange
def test_what_is_met_in_a_folder_is_passed_over_with_a_warning(kind: str, project: Path) -> None:
    make, _, says = STRANGE[kind]
    make(project / "inner" / "x.yaml")
    cases, problems, (warning,) = read(project)
    assert (cases, problems, warning.code) == (["right"], [], "file_passed_over")
    assert says in warning.message
    assert "x.yaml" in warning.message


@pytest.mark.parametrize("to", ["x.yaml", "y.yaml", "nothing.yaml", "a" * 5000])
def test_a_link_that_leads_nowhere_is_passed_over(to: str, project: Path) -> None:
    if len(to) > 4095:
        to = to[:4000]
    (project / "inner" / "x.yaml").symlink_to(to)
    (project / "inner" / "y.yaml").symlink_to("x.yaml")
    cases, problems, warnings = read(project)
    assert (cases, problems) == (["right"], [])
    assert [each.code for each in warnings] == ["file_passed_over"] * 2


def test_a_link_inside_the_project_is_a_file_like_any_other(project: Path) -> None:
    (project / "inner" / "x.yaml").symlink_to("../right.yaml")
    assert read(project / "inner" / "x.yaml") == (["x"], [], [])
    assert read(project / "inner") == (["x"], [], [])


def test_mounted_configuration_is_inside_its_own_folder(tmp_path: Path) -> None:
    """A mount of Kubernetes is a link to a link to a folder beside it."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "x.yaml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "x.yaml").symlink_to("..data/x.yaml")
    assert read(tmp_path / "x.yaml") == (["x"], [], [])


def test_links_are_followed_when_asked_for(project: Path) -> None:
    (project / "x.yaml").symlink_to("../outside.yaml")
    (project / "z.yaml").symlink_to("/dev/zero")
    assert read(project / "x.yaml", limits=FOLLOW)[0] == ["x"]
    cases, problems, (warning,) = read(project, limits=FOLLOW)
    assert (sorted(cases), problems) == (["right", "x"], [])
    assert "a device" in warning.message


@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind != "a_link_to_a_folder"])
def test_a_used_file_is_held_to_the_same(kind: str, project: Path) -> None:
    STRANGE[kind][0](project / "inner" / "part.yaml")
    user = project / "user.yaml"
    user.write_text("world_size: 2\nsteps: [use: {file: inner/part.yaml}]\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(user)
    (problem,) = caught.value.problems
    assert problem.code in {"use_outside_project", "unreadable_file"}
    assert problem.mark is not None
    assert problem.mark.source.path.endswith("user.yaml")
    assert "bash" not in str(problem)


def test_a_link_that_leads_in_a_circle_is_no_used_file(project: Path) -> None:
    (project / "part.yaml").symlink_to("part.yaml")
    user = project / "user.yaml"
    user.write_text("world_size: 2\nsteps: [use: {file: part.yaml}]\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(user)
    assert caught.value.problems[0].code in {"file_not_found", "unreadable_file"}


def test_a_file_that_is_exchanged_after_it_was_looked_at_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inner = project / "inner" / "x.yaml", project / "inner"
    path.write_text(TEXT, encoding="utf-8")
    find = os.path.realpath

    def exchanging(name: Path, **more: bool) -> str:
        found = find(name, **more)
        if name == path and not inner.is_symlink():
            inner.rename(project / "before")
            (project.parent / "x.yaml").write_text(SECRET, encoding="utf-8")
            inner.symlink_to(project.parent)
        return found

    monkeypatch.setattr("torch_scenarios.files.os.path.realpath", exchanging)
    with pytest.raises(ScenarioError) as caught:
        read_file(path, root=project)
    assert caught.value.problems[0].code == "link_outside_project"


def test_a_fifo_is_not_waited_for_where_it_takes_the_place_of_a_file(project: Path) -> None:
    os.mkfifo(project / "late.yaml")
    with pytest.raises(ScenarioError, match="a FIFO"):
        read_file(project / "late.yaml")


def test_a_folder_is_walked_wherever_it_lies(project: Path) -> None:
    (project.parent / "elsewhere").symlink_to(project / "inner")
    (project / "inner" / "x.yaml").write_text(TEXT, encoding="utf-8")
    assert [path.name for path in discover([project.parent / "elsewhere"])] == ["x.yaml"]
    assert [path.name for path in discover([project.parent])] == [
        "outside.yaml",
        "x.yaml",
        "right.yaml",
    ]
