"""What a call that torch refused leaves open in NCCL, and how it is closed.

torch opens a group of NCCL's for a message, a scatter, an exchange or a batch, and asks for the
dtype inside of it. A refusal leaves the group open, and whatever the thread calls after that is
noted in it and never launched: an all_reduce returns at once and changes nothing (seen with torch
2.11; ProcessGroupNCCL.cpp, `pointToPoint` and `startCoalescing`). It would stay so in every later
world of the process.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runner.execution import nccl

if TYPE_CHECKING:
    from types import ModuleType

#: groups that a thread may have open; more is no count but a library that always says yes
MOST = 64


def close_groups(torch: ModuleType, device: Any) -> None:  # noqa: ANN401 -- torch.device
    """Close every group that is open on this thread; nothing where tensors live on the CPU."""
    if device.type == "cpu":
        return
    state = torch.distributed.distributed_c10d._world.pg_coalesce_state  # noqa: SLF001 -- no public name
    for group in tuple(state):
        # torch forgets it in the same place where a batch would have ended
        state.pop(group)
        with suppress(RuntimeError):
            group._end_coalescing(device)  # noqa: SLF001 -- no public name
    try:
        end = nccl.library().ncclGroupEnd
    except (OSError, AttributeError):
        return
    for _ in range(MOST):
        if end() != 0:  # not in a group
            return
