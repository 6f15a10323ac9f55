"""Hosts that cannot be simulated, and nodes that are named wrongly, are said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.execution import netns

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"


def test_without_namespaces_each_case_is_unsupported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    report = tmp_path / "report.json"
    monkeypatch.setattr(netns, "lack", lambda: "this process may not make a network namespace")
    arguments = ["run", "--netns", "2", "--no-cache", "--json", str(report), str(tmp_path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    (result,) = json.loads(report.read_text(encoding="utf-8"))["results"]
    assert result["verdict"] == "UNSUPPORTED"
    assert result["reason"] == "--netns: this process may not make a network namespace"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nnodes", "2"], "--nnodes needs --rdzv-endpoint HOST:PORT"),
        (["--nnodes", "2", "--rdzv-endpoint", "host0"], "is not HOST:PORT"),
        (["--netns", "1"], "1 is not in the range"),
    ],
)
def test_nodes_that_are_named_wrongly_end_the_command(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["run", *arguments])
    assert done.exit_code == 2
    assert words in done.output


def test_simulated_hosts_have_addresses_of_one_network() -> None:
    assert [netns.address(number) for number in range(2)] == ["10.77.0.1", "10.77.0.2"]
