"""Checkpoints over nodes: in a folder that these share, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hosts import SUM

if TYPE_CHECKING:
    from hosts import Hosts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

FILE = Path(__file__).parents[2] / "scenarios" / "strategies" / "checkpoint_of_other_ranks.yaml"


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("launcher", ["scenario", "torchrun"])
def test_a_checkpoint_goes_over_nodes_that_share_its_folder(
    hosts: Hosts, launcher: str, *, shared: bool
) -> None:
    folder, after = hosts.folder / "checkpoints", hosts.folder / "sum.yaml"
    folder.mkdir()
    after.write_text(SUM, encoding="utf-8")
    if not shared:
        hosts.private[1] = folder
    paths, temporary = (str(FILE), str(after)), {"TMPDIR": str(folder)}
    if launcher == "scenario":
        hosts.spread(*paths, environment=temporary)
    else:
        hosts.launch(*paths, environment=dict.fromkeys(range(2), temporary))
    ended = hosts.ended()
    case = FILE.stem
    assert ended.verdicts == {case: "PASSED" if shared else "UNSUPPORTED", "sum": "PASSED"}, ended
    if not shared:
        assert "rank 2 on host node1 does not see" in ended.reason(case)
        assert "TMPDIR" in ended.reason(case)
    assert not [each for each in folder.iterdir() if each.name.startswith("scenario-")]
