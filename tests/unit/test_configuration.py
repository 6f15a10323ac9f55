"""What a project fixes in its pyproject.toml, and what no project may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [2]}}]\n"
#: a step that no rank takes: a warning
WARNED = SUM.replace("steps: [", "steps: [{barrier: {}, ranks: []}, ")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder below a project's root, with a case beside it and one in a folder."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "sum.yaml").write_text(SUM)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "other.yaml").write_text(SUM)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\n')
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def configure(project: Path, *lines: str) -> None:
    (project / "pyproject.toml").write_text("\n".join(["[tool.scenario]", *lines, ""]))


def given(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_without_paths_the_folder_is_meant() -> None:
    assert given("list").output == "other.yaml::other\n"
    assert "1 passed" in given("check").output


def test_without_paths_those_of_the_project_are_meant_wherever_one_stands(project: Path) -> None:
    configure(project, 'paths = ["cases"]')
    assert given("list").output == "../cases/sum.yaml::sum\n"
    assert "../cases/sum.yaml::sum" in given("check", "-v").output
    assert given("list", "other.yaml").output == "other.yaml::other\n"


def test_an_option_of_the_project_counts_until_the_command_line_says_more(project: Path) -> None:
    (project / "below" / "other.yaml").write_text(WARNED)
    assert given("check").exit_code == 0
    configure(project, "strict = true")
    assert given("check").exit_code == 1
    configure(project, "max-ranks = 1")
    refused = given("check")
    assert refused.exit_code == 2
    assert "--limit ranks=N" in refused.output
    assert given("check", "--max-ranks", "2").exit_code == 0


def test_an_option_that_a_command_lacks_is_for_others(project: Path) -> None:
    configure(project, 'backend = "gloo"', 'confirm = "timeout"')
    assert given("check").exit_code == 0
    assert given("list").exit_code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('plugin = ["evil"]', "`plugin` is not for a project to fix"),
        ('json = "/tmp/x"', "`json` is not for a project to fix"),
        ("follow-links = true", "`follow-links` is not for a project to fix"),
        ("strickt = true", "did you mean `strict`?"),
        ("max-ranks = 65", "a project only lowers a bound"),
        ("max-ranks = true", "a project only lowers a bound"),
        ("max-ranks = 0", "a project only lowers a bound"),
        ('paths = ["/etc"]', "'/etc' leads out of the project"),
        ('paths = ["../x"]', "'../x' leads out of the project"),
        ("paths = 3", "`paths` is a list of files and folders"),
        ("paths = [", "cannot be read"),
    ],
)
def test_what_no_project_fixes_is_refused_by_name(line: str, words: str, project: Path) -> None:
    configure(project, line)
    for command in ("check", "run", "list"):
        refused = given(command)
        assert refused.exit_code == 2, refused.output
        assert words in " ".join(refused.output.split())
        assert "pyproject.toml" in refused.output


def test_a_value_of_another_kind_is_refused(project: Path) -> None:
    configure(project, 'timeout = "soon"')
    refused = given("run", "--dry-run")
    assert refused.exit_code == 2
    assert "`timeout`" in refused.output
    assert "pyproject.toml" in refused.output


@pytest.mark.parametrize(
    "line",
    [
        *("jobs = -1", "jobs = 0", 'jobs = "many"', "jobs = true", "timeout = nan"),
        *("timeout = inf", "timeout = -1", 'strict = "yes"', "strict = 1", "quiet = []"),
    ],
)
def test_what_the_option_would_not_take_is_refused_by_its_key(project: Path, line: str) -> None:
    configure(project, line)
    refused = given("run", "--dry-run")
    assert refused.exit_code == 2
    assert f"`{line.partition(' ')[0]}`" in refused.output
    assert "pyproject.toml" in refused.output


def test_check_stops_at_a_failure_and_repeats_what_failed(project: Path) -> None:
    for name in ("a", "b"):
        (project / "below" / f"{name}.yaml").write_text(SUM.replace("[2]", "[3]"))
    assert "2 failed" in given("check").output
    assert "1 failed" in given("check", "-x").output
    again = given("check", "--lf").output
    assert "other" not in again
    assert "2 failed" in again
    (project / "below" / "b.yaml").write_text(SUM)
    mended = given("check", "--lf").output
    assert "1 passed, 1 failed" in mended
    assert "b.yaml" not in given("check", "--lf").output
    assert given("check", "--ff").output.startswith("FAILED       a.yaml")
    assert given("check", "--shard", "1/3").output.count("::") == 1


def test_what_a_check_remembers_is_not_what_a_run_remembers(project: Path) -> None:
    (project / "below" / "a.yaml").write_text(SUM.replace("[2]", "[3]"))
    given("check")
    assert {path.name for path in (project / ".scenario").iterdir()} >= {"checked.json"}
    assert not (project / ".scenario" / "last.json").exists()
