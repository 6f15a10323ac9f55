"""What a page of the documentation shows: its blocks, the files among them, the sessions to try."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from typing import TYPE_CHECKING

from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<kind>[{}\w]+)[^\n]*\n(?P<body>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
_GENERATED = re.compile(
    r"^<!-- generated: (?!end).*?^<!-- generated: end -->$", re.DOTALL | re.MULTILINE
)
_SECONDS = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, the comment above it, its text."""

    kind: str
    note: str
    body: str

    @property
    def about(self) -> str:
        """The first line, short enough to name a test."""
        return self.body.partition("\n")[0][:60]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order, without those that the code writes."""
    text = _GENERATED.sub("", page.read_text(encoding="utf-8"))
    return [
        Block(kind=found["kind"], note=found["note"] or "", body=found["body"])
        for found in _BLOCK.finditer(text)
    ]


def noted(page: Path, prefix: str) -> dict[str, Block]:
    """Return the blocks whose comment begins so, by the rest of the comment."""
    found = {block.note: block for block in blocks(page) if block.note.startswith(prefix)}
    return {note.removeprefix(prefix).strip(): block for note, block in found.items()}


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows into a folder."""
    for name, block in noted(page, "file:").items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(block.body, encoding="utf-8")


def timeless(text: str) -> str:
    """Replace every duration, which no two runs share, and the blanks at line ends.

    That workers took a while to be ready is a line which a quick machine does not print.
    """
    lines = _SECONDS.sub("N s", text).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines if line != "workers ready in N s")


#: a pipe of a hundred columns, in CI but for GitHub
SURROUNDINGS = {"COLUMNS": "100", "NO_COLOR": "1", "CI": "true", "GITHUB_ACTIONS": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command has said, and how it has ended."""

    returncode: int
    stdout: str
    stderr: str


def scenario(*arguments: str, folder: Path) -> Done:
    """Run the command in `folder`, in this process."""
    with chdir(folder):
        done = CliRunner().invoke(cli, arguments, env=SURROUNDINGS)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def scenario_of(package: Path, *arguments: str, folder: Path) -> Done:
    """Run the command of a copy of the package, which lies in the folder `package`."""
    environment = {**os.environ, **{name: value for name, value in SURROUNDINGS.items() if value}}
    done = subprocess.run(
        [sys.executable, "-m", "torch_scenarios.cli", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)
