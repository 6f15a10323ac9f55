"""The folder of a run's checkpoints: this run's own, or not used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios import load, plan
from torch_scenarios.execution.checkpoints import MARK, CheckpointFolder, checkpoint_folder
from torch_scenarios.operations import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.model.plan import Plan

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"


def plan_of(folder: Path, text: str) -> Plan:
    """Return the plan of a file with one case."""
    path = folder / "case.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return plan(scenario)


@pytest.fixture
def found(tmp_path: Path) -> Iterator[CheckpointFolder]:
    """Return the folder of a scenario that saves a checkpoint."""
    with checkpoint_folder(plan_of(tmp_path, BY_NAME["save"].example)) as folder:
        assert folder is not None
        yield folder


def test_a_scenario_without_a_checkpoint_has_no_folder(tmp_path: Path) -> None:
    with checkpoint_folder(plan_of(tmp_path, SUM)) as folder:
        assert folder is None


def test_the_folder_goes_with_the_run(tmp_path: Path) -> None:
    with checkpoint_folder(plan_of(tmp_path, BY_NAME["save"].example)) as folder:
        assert folder is not None
        assert folder.lack() is None
    assert not Path(folder.path).exists()


def test_a_folder_that_is_not_there_is_not_seen(found: CheckpointFolder) -> None:
    absent = replace(found, path=f"{found.path}-absent")
    assert absent.lack() == f"does not see {found.path}-absent"


def test_a_folder_of_the_same_name_is_another(found: CheckpointFolder) -> None:
    Path(found.path, MARK).write_text("another", encoding="ascii")
    assert found.lack() == f"finds another folder {found.path}"


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_may_enter_is_not_used(found: CheckpointFolder, mode: int) -> None:
    Path(found.path).chmod(mode)
    lack = found.lack()
    Path(found.path).chmod(0o700)
    assert lack == f"finds a folder {found.path} that is not its user's alone"


def test_a_link_to_a_folder_is_not_used(found: CheckpointFolder, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(found.path)
    assert "not its user's alone" in str(replace(found, path=str(link)).lack())


@pytest.mark.skipif(os.geteuid() != 0, reason="a folder is given to another user by root alone")
def test_a_folder_of_another_user_is_not_used(found: CheckpointFolder) -> None:
    os.chown(found.path, 12345, -1)
    assert "not its user's alone" in str(found.lack())
