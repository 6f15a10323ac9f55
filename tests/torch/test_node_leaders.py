"""What the processes of a node hear of the first one, which leads it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed
from processes import until

from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.nodes import Follower, Leader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

dist: Any = torch.distributed

pytestmark = pytest.mark.torch

LEADER_ENDED = "rank 2, which leads its node, ended"
#: what a process that follows a leader has heard
OVER, LOST = 3, 4


def run(act: Callable[[], int]) -> int:
    """Run a function in a new process, and let its result be the exit code."""
    process = os.fork()
    if process == 0:
        code = 1
        with suppress(Exception):
            code = act()
        os._exit(code)
    return process


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("parts", [True, False], ids=["parts", "ends"])
def test_a_leader_that_parts_is_no_loss(
    tmp_path: Path,
    parts: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """The others of its node may hear of the end of the run later, over a slow link."""

    def make_store() -> Any:
        return dist.FileStore(str(tmp_path / "store"), -1)

    def lead() -> int:
        leader = Leader(make_store(), "run", Secret(b"key"), 2, "1", lost=lambda _: None)
        leader.start()
        os.read(begun, 1)
        if parts:
            leader.part()
        return 0

    def follow() -> int:
        lost: list[str] = []
        follower = Follower(make_store(), "run", Secret(b"key"), 3, "1", lost=lost.append)
        follower.start()
        os.write(begins, b"x")
        until(lambda: follower.is_over or bool(lost), 60.0)
        return OVER if follower.is_over and not lost else LOST if lost == [LEADER_ENDED] else -1

    begun, begins = os.pipe()
    leading, following = (run(act) for act in (lead, follow))
    assert ended(leading) == 0
    assert ended(following) == (OVER if parts else LOST)
