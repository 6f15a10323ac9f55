"""Steps of `torch.distributed.rpc`: UNSUPPORTED with a reason, and INVALID where misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - rpc_sync: {to: 1, func: "x * 2", timeout: 1s, output: y}
    ranks: 0
    expect: {y: [2, 4]}
  - for: {i: "range(2)"}
    steps:
      - remote: {to: 1, func: "x * 2", args: [x]}
        as: r
        ranks: 0
      - to_here: {rref: r, output: z}
        ranks: 0
  - rpc_async: {to: 1, func: "x * 2"}
    as: f
    ranks: 0
  - wait: f
"""
MISSPELT = {
    "a call": ("rpc_sync:", "rpc_sinc:"),
    "an argument": ("timeout: 1s", "time_out: 1s"),
    "no rank": ("to: 1", "too: 1"),
    "a name": ('"x * 2", timeout', '"xs * 2", timeout'),
    "a handle": ("rref: r", "rref: q"),
}


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_case_with_rpc_is_unsupported_with_its_reason(tmp_path: Path, command: str) -> None:
    path = tmp_path / "rpc.yaml"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(cli, [command, str(path)])
    assert found.exit_code == 0
    assert "UNSUPPORTED" in found.output
    assert "`rpc_sync` runs on a thread of the rank that it calls" in found.output


@pytest.mark.parametrize("change", MISSPELT)
def test_what_is_misspelt_is_invalid(tmp_path: Path, change: str) -> None:
    path = tmp_path / "rpc.yaml"
    path.write_text(PROGRAM.replace(*MISSPELT[change]))
    found = CliRunner().invoke(cli, ["check", str(path)])
    assert found.exit_code == 2, found.output


@pytest.mark.parametrize("command", ["bless", "cost", "show"])
def test_no_command_takes_it_for_a_program(tmp_path: Path, command: str) -> None:
    path = tmp_path / "rpc.yaml"
    path.write_text(PROGRAM)
    found = CliRunner().invoke(cli, [command, str(path)])
    assert found.exit_code != 0
    assert "`rpc_sync` runs on a thread" in found.output
    assert path.read_text() == PROGRAM


def test_its_page_has_no_example_that_passes() -> None:
    found = CliRunner().invoke(cli, ["ops", "to_here"])
    assert "UNSUPPORTED" in found.output
    assert "passes" not in found.output
