"""`scenario show` of what real Gloo did, right after a run and from what a run kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

CORPUS = Path(__file__).parents[2] / "scenarios"

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder that is a project of its own."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_hang_is_drawn_as_gloo_showed_it() -> None:
    text = output("show", "--run", str(CORPUS / "p2p/both_send_first.yaml"))
    assert "both_send_first  observed on gloo: deadlock" in text
    assert "  14  ✗╌╌╌╌╌╌╌╌▷?  send to 1  waits for rank 1 to receive" in text
    assert "\nPASSED " in text


def test_the_latest_run_is_drawn_with_the_values_that_ranks_held() -> None:
    output("run", str(CORPUS / "groups/created_on_the_way.yaml"))
    text = output("show", "--last", "--values")
    assert "observed on gloo: completes" in text
    # that the machine let a rank wait is said behind the call, which takes room from the lanes
    assert re.search(r"^  16  ●━+●━+●  all_reduce", text, re.MULTILINE), text
    assert "x = [10, 10]\n" in text


def test_who_came_late_is_said_beside_what_it_held_up() -> None:
    text = output("show", "--run", str(CORPUS / "faults/straggler.yaml"))
    assert "sleep  took " in text
    assert "all_reduce  rank 2 came " in text
