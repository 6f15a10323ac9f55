"""`monitored_barrier`: a barrier that names who is missing (Gloo only)."""

from __future__ import annotations

from torch_scenarios.expressions.params import GROUP, TIMEOUT, Param
from torch_scenarios.operations.barrier import Barrier
from torch_scenarios.operations.base import Entry


class MonitoredBarrier(Barrier):
    """Wait for every member; after the timeout, rank 0 of the group names those who are missing.

    torch's own default is 30 minutes, for any timeout of the group; a scenario that gives none
    means the group's.
    """

    name = "monitored_barrier"
    params = (
        GROUP,
        TIMEOUT,
        Param(
            name="wait_all_ranks",
            kind="flag",
            default=False,
            description="Name every missing rank, not only the first.",
        ),
    )
    c10d = ("monitored_barrier_",)
    slots = ()
    example = """\
world_size: 2
steps:
  - monitored_barrier: {timeout: 5s}
"""

    def looks_up(self, entry: Entry) -> bool:
        """Torch asks which backend the group has."""
        return True
