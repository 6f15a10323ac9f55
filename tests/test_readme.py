"""What README.md shows is true: its scenarios, its output, its Python, its operation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from pages import Block, blocks, noted, scenario, scenario_of, timeless, write_files

import torch_scenarios
from torch_scenarios.cli import COMMANDS, cli

README = Path(__file__).parents[1] / "README.md"
PACKAGE = Path(torch_scenarios.__file__).parent
BLOCKS = blocks(README)
SESSIONS = [block for block in BLOCKS if block.kind == "console"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_files(README, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.torch
@pytest.mark.usefixtures("forked_hosts")
@pytest.mark.parametrize("session", SESSIONS, ids=lambda block: block.about)
def test_shown_output_is_real(session: Block, folder: Path) -> None:
    command, _, shown = session.body.partition("\n")
    assert command.startswith("$ scenario ")
    done = scenario(*command.split()[2:], folder=folder)
    assert timeless(done.stdout + done.stderr) == timeless(shown)


@pytest.mark.parametrize("name", sorted(noted(README, "file:")))
def test_shown_scenarios_are_scenarios(name: str, folder: Path) -> None:
    for case in torch_scenarios.load(folder / name):
        torch_scenarios.simulate(torch_scenarios.plan(case))


@pytest.mark.usefixtures("folder")
def test_shown_python_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (python,) = (block for block in BLOCKS if block.note == "python")
    (text,) = (block for block in BLOCKS if block.kind == "text")
    exec(compile(python.body, "README.md", "exec"), {})  # noqa: S102 -- the README's own words
    assert capsys.readouterr().out.strip() == text.body.strip()


@pytest.mark.torch
def test_shown_operation_works_with_its_one_line(tmp_path: Path) -> None:
    """A copy of the package with the shown file and the shown line runs it on real Gloo."""
    ((name, block),) = noted(README, "operation:").items()
    (change,) = (each.body for each in BLOCKS if each.note == "line")
    line = "".join(f"{each[1:]}\n" for each in change.splitlines() if each.startswith("+"))
    source = tmp_path / "runner"
    package = shutil.copytree(
        PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("*.pyc")
    )
    (package / "operations" / f"{name}.py").write_text(block.body, encoding="utf-8")
    (operation,) = re.findall(r"^class (\w+)", block.body, re.MULTILINE)
    table = package / "operations" / "__init__.py"
    text = table.read_text(encoding="utf-8")
    imported = f"from torch_scenarios.operations.{name} import {operation}\n"
    first = "from torch_scenarios.operations.all_gather import AllGather\n"
    assert first in text
    text = text.replace(first, f"{imported}{first}", 1)
    table.write_text(text.replace("    Fault(),\n", f"    Fault(),\n{line}"), encoding="utf-8")
    shutil.rmtree(package / "schemas", ignore_errors=True)  # where an installed package has them
    (tmp_path / "schemas").mkdir()
    command = [sys.executable, "-m", "torch_scenarios.language.schema"]
    law = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout
    (tmp_path / "schemas" / "scenario.schema.json").write_text(law, encoding="utf-8")
    (example,) = re.findall(r'example = """\\\n(.*?)"""', block.body, re.DOTALL)
    (tmp_path / "example.yaml").write_text(example, encoding="utf-8")
    done = scenario_of(source, "run", "--backend", "gloo", "example.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_names_only_what_exists() -> None:
    root = README.parent
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_the_table_of_commands_is_whole() -> None:
    table = re.findall(r"^\| `scenario (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(COMMANDS)


def test_options_that_are_named_exist() -> None:
    text = "\n".join(block.body for block in BLOCKS if block.kind in {"sh", "console"})
    for name, rest in re.findall(r"\bscenario (\w+)\b([^&\n]*)", text):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for param in command.params for option in param.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, rest
