"""`destroy_process_group`: gives a process group up, on this rank."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import GROUP
from torch_scenarios.operations.base import Caller, Entry, Local


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

    def looks_up(self, entry: Entry) -> bool:
        """A group is destroyed once."""
        return True

    def execute(self, dist: ModuleType, arguments: dict[str, Any]) -> Any:
        """Call torch, whose words for a destroyed group are those for one of others."""
        try:
            return super().execute(dist, arguments)
        except (ValueError, AssertionError) as error:
            message = "the process group was destroyed before"
            raise ValueError(message) from error

    def run(self, caller: Caller, entry: Entry) -> None:
        """Give the group up."""
        caller.destroy(entry.group.name)
