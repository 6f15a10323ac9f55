"""`wait`: completes asynchronous work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.base import Waiting
from runner.operations.params import Param

if TYPE_CHECKING:
    from runner.operations.entries import Entry
    from runner.program import Process
    from runner.scenario import Step


class Wait(Waiting):
    """Wait for the work behind one handle, or behind several, in order."""

    name = "wait"
    bare = "handles"
    params = (
        Param(
            name="handles",
            kind="handles",
            required=True,
            description="The handle that `as` named, or a list of handles.",
        ),
    )
    source = "torch.distributed.Work.wait"
    example = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - wait: work
    expect:
      x: [3, 3]
"""

    def label(self, entry: Entry) -> str:
        """`wait work`."""
        return "wait " + ", ".join(self.handles(entry))

    def concerns(self, process: Process, step: Step) -> bool:
        """A rank that started none of this work skips the step."""
        named = process.evaluate(step.arguments["handles"])
        return not process.handles.isdisjoint([named] if isinstance(named, str) else named)

    def handles(self, entry: Entry) -> tuple[str, ...]:
        """Return the handles in the order in which they are waited for."""
        named = entry["handles"]
        return (named,) if isinstance(named, str) else tuple(named)
