"""What README.md shows is true: its scenarios, its output, its Python, its operation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

import runner
from runner import operations
from runner.operations.base import Operation

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n", re.DOTALL
)
SECONDS = re.compile(r"\d+(?:\.\d+)? (?:ms|s)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, the comment above it, its text."""

    kind: str
    note: str
    body: str


BLOCKS = [
    Block(kind=found["kind"], note=found["note"] or "", body=found["body"])
    for found in BLOCK.finditer(README.read_text(encoding="utf-8"))
]
SESSIONS = [block for block in BLOCKS if block.kind == "console"]


def noted(prefix: str) -> dict[str, Block]:
    """Return the blocks whose comment begins so, by the rest of the comment."""
    notes = {block.note: block for block in BLOCKS if block.note.startswith(prefix)}
    return {note.removeprefix(prefix).strip(): block for note, block in notes.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, block in noted("file:").items():
        (tmp_path / name).write_text(block.body, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def timeless(text: str) -> str:
    """Replace every duration, which no two runs share, and the blanks at line ends."""
    lines = SECONDS.sub("N s", text).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.torch
@pytest.mark.parametrize("session", SESSIONS, ids=lambda block: block.body.splitlines()[0])
def test_shown_output_is_real(session: Block, folder: Path) -> None:
    command, _, shown = session.body.partition("\n")
    assert command.startswith("$ scenario ")
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", *command.split()[2:]],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert timeless(done.stdout + done.stderr) == timeless(shown)


@pytest.mark.parametrize("name", sorted(noted("file:")))
def test_shown_scenarios_are_scenarios(name: str, folder: Path) -> None:
    for scenario in runner.load(folder / name):
        runner.simulate(runner.plan(scenario))


@pytest.mark.usefixtures("folder")
def test_shown_python_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (python,) = (block for block in BLOCKS if block.note == "python")
    (text,) = (block for block in BLOCKS if block.kind == "text")
    exec(compile(python.body, "README.md", "exec"), {})  # noqa: S102 -- the README's own words
    assert capsys.readouterr().out.strip() == text.body.strip()


def test_shown_operation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, block),) = noted("operation:").items()
    module = types.ModuleType(f"runner.operations.{name}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block.body, "README.md", "exec"), vars(module))  # noqa: S102 -- as above
    shown = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Operation)
        and each.__module__ == module.__name__
    ]
    (operation,) = (each() for each in shown)
    monkeypatch.setitem(operations.BY_NAME, operation.name, operation)
    (tmp_path / "example.yaml").write_text(operation.example, encoding="utf-8")
    (scenario,) = runner.load(tmp_path / "example.yaml")
    predicted = runner.simulate(runner.plan(scenario))
    assert runner.judge(scenario, predicted).status == "PASSED"


def test_readme_names_only_what_exists() -> None:
    root = README.parent
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (root / link).exists()] == []
