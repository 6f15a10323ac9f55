"""`scenario bless` and `scenario minimize --run` on real processes, at a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from warm_hosts import WarmHosts

pytestmark = pytest.mark.torch

SUM = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x}  # both
"""
BLESSED = SUM + "    expect:\n      x: [3, 3]\n"
#: Gloo reduces the first elements of the storage instead of the column
COLUMN = """\
world_size: 4
tensors:
  grid: "stack([full(4, rank + 1), zeros(4)], axis=1)"
  other: "full(8, rank)"
steps:
  - all_reduce: {tensor: other}
  - all_reduce: {tensor: "grid[:, 0]"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    for name in ("a.yaml", "b.yaml", "c.yaml"):
        (tmp_path / name).write_text(SUM, encoding="utf-8")
    return tmp_path


def reviewed(hosts: WarmHosts, folder: Path, answers: str) -> subprocess.CompletedProcess[bytes]:
    """Run a review at a terminal at which somebody has already typed the answers."""
    master, slave = pty.openpty()
    try:
        os.write(master, answers.encode())
        return subprocess.run(
            hosts.command("scenario", "bless", "--review", "--backend", "gloo", "."),
            stdin=slave,
            capture_output=True,
            cwd=folder,
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)


def texts(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]


def test_what_gloo_confirms_is_written(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["bless", "--backend", "gloo", "a.yaml"])
    assert result.exit_code == 0
    assert result.output == "blessed    a.yaml  1 value\n1 blessed\n"
    assert texts(folder) == [BLESSED, SUM, SUM]


def test_what_gloo_does_otherwise_is_refused(folder: Path) -> None:
    (folder / "a.yaml").write_text(COLUMN, encoding="utf-8")
    result = CliRunner().invoke(cli, ["bless", "--backend", "gloo", "a.yaml"])
    assert result.exit_code == 1
    assert "[reference_disagrees]" in result.output
    assert texts(folder)[0] == COLUMN


def test_what_gloo_does_otherwise_is_minimised_by_running(folder: Path) -> None:
    (folder / "a.yaml").write_text(COLUMN, encoding="utf-8")
    result = CliRunner().invoke(cli, ["minimize", "--run", "--backend", "gloo", "a.yaml"])
    assert result.exit_code == 0
    assert result.stdout == (
        'world_size: 2\ntensors:\n  grid: "stack([full(2, rank + 1), zeros(2)], axis=1)"\n'
        'steps:\n  - all_reduce: {tensor: "grid[:, 0]"}\n'
    )


@pytest.mark.parametrize(
    ("answers", "written"),
    [("n\na\n", [False, True, True]), ("y\nq\n", [True, False, False])],
)
def test_a_review_asks_for_each_file(
    folder: Path, answers: str, written: list[bool], forked_hosts: WarmHosts
) -> None:
    done = reviewed(forked_hosts, folder, answers)
    assert done.returncode == 0, done.stderr
    assert texts(folder) == [BLESSED if yes else SUM for yes in written]
    assert b"+      x: [3, 3]" in done.stdout
    assert b"Write a.yaml? (y)es, (n)o, (a)ll that follow, (q)uit" in done.stdout
