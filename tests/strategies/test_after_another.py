"""What DTensor keeps of one scenario's meshes is nothing to the next one in the same processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

pytestmark = [pytest.mark.torch, pytest.mark.slow]

STRATEGIES = Path(__file__).parents[2] / "scenarios" / "strategies"
#: the same layouts on meshes of the same ranks, whose groups have other names
ORDER = ("checkpoint_goes_round", "checkpoint_of_other_ranks", "fully_shard_clips_gradients")


@pytest.mark.nightly
def test_a_mesh_of_the_scenario_before_is_not_used_again(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    files = [str(STRATEGIES / f"{name}.yaml") for name in ORDER]
    done = CliRunner().invoke(cli, ["run", "--no-cache", "--json", str(report), *files])
    assert done.exit_code == 0, done.output
    verdicts = {
        each["case"]: each["verdict"]
        for each in json.loads(report.read_text(encoding="utf-8"))["results"]
    }
    assert list(verdicts) == list(ORDER)
    assert set(verdicts.values()) <= {"PASSED", "UNSUPPORTED"}, verdicts
