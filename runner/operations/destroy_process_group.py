"""`destroy_process_group`: gives a process group up, on this rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.base import Local
from runner.operations.params import GROUP

if TYPE_CHECKING:
    from runner.operations.entries import Entry
    from runner.program import Process


class DestroyProcessGroup(Local):
    """Destroy a process group on this rank, or the world and with it every group."""

    name = "destroy_process_group"
    params = (GROUP,)
    calls_torch = True
    example = """\
world_size: 2
groups:
  pair: [0, 1]
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, group: pair}
  - destroy_process_group: {group: pair}
  - all_reduce: {tensor: x}
    expect:
      x: [4, 8]
"""

    def run(self, process: Process, entry: Entry) -> None:
        """Forget the group."""
        process.leave(entry.group.name)
