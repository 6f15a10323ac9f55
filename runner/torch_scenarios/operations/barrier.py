"""`barrier`: no rank leaves before every rank has entered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_scenarios.expressions.params import ASYNC_OP, GROUP, TIMEOUT
from torch_scenarios.operations.base import Collective, Entry


class Barrier(Collective):
    """Wait until every member of the group has entered the barrier."""

    name = "barrier"
    params = (GROUP, ASYNC_OP, TIMEOUT)
    c10d = ("barrier",)
    dumped = ("barrier", "all_reduce_barrier")
    slots = ()
    example = """\
world_size: 2
steps:
  - ranks: 1
    sleep: 0.2s
  - barrier: {}
    expect:
      elapsed: {min: 0.2s}
"""

    def reference(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Nothing is stored (MPI 4.1, 6.3)."""
        return [{} for _ in entries]
