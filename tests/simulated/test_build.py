"""Where a build of the simulated GPUs lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulated.build import Torch
from tests.simulated.surroundings import FOLDER, folder_for

if TYPE_CHECKING:
    from pathlib import Path


def torch_of(folder: Path, version: str) -> Torch:
    """Return a torch that says its version, and has nothing else."""
    folder.mkdir()
    (folder / "version.py").write_text(f"__version__ = '{version}'\ndebug = False\n")
    return Torch(folder=folder, includes=())


def test_two_versions_of_torch_have_builds_of_their_own(tmp_path: Path) -> None:
    older = torch_of(tmp_path / "older", "2.14.1+cu130")
    newer = torch_of(tmp_path / "newer", "2.15.0+cu132")
    assert folder_for(older) == FOLDER / "2.14.1+cu130"
    assert folder_for(newer) == FOLDER / "2.15.0+cu132"
