"""What README.md shows is true: its scenarios, its output, its drawing, its commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from pages import Block, blocks, noted, scenario, timeless, write_files

import torch_scenarios
from torch_scenarios.cli import cli

README = Path(__file__).parents[1] / "README.md"
BLOCKS = blocks(README)
SESSIONS = [block for block in BLOCKS if block.kind == "console"]


#: what the page says to add to the second step of its scenario
ADDED = "ranks: [1, 3, 7]"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_files(README, tmp_path)
    assert f"`{ADDED}`" in README.read_text(encoding="utf-8")
    right = (tmp_path / "groups_even.yaml").read_text(encoding="utf-8")
    head, step, rest = right.partition("  - all_reduce: {tensor: x, group: odd}\n")
    broken = f"{head}{step}    {ADDED}\n{rest}"
    (tmp_path / "rank_5_skips.yaml").write_text(broken, encoding="utf-8")
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


def test_readme_names_only_what_exists() -> None:
    root = README.parent
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_it_fits_on_a_screen() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 90


def test_options_that_are_named_exist() -> None:
    text = "\n".join(block.body for block in BLOCKS if block.kind in {"sh", "console"})
    for name, rest in re.findall(r"\bscenario (\w+)\b([^&\n]*)", text):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for param in command.params for option in param.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, rest
