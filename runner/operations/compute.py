"""`compute`: changes what a rank holds, locally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.forms import Record
from runner.operations.base import Local
from runner.operations.params import Param

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.forms import Form
    from runner.operations.entries import Entry
    from runner.program import Process
    from runner.scenario import Step


class Compute(Local):
    """Assign expressions to names, in order. A name may be new; a result never shares memory."""

    name = "compute"
    bare = "assignments"
    params = (
        Param(
            name="assignments",
            kind="assignments",
            required=True,
            description="Names and what each becomes.",
        ),
    )
    source = "the Python array API standard"
    example = """\
world_size: 2
tensors:
  x: [1, 2, 3]
steps:
  - compute: {y: "x * 2", z: "y + rank"}
    expect:
      z: {0: [2, 4, 6], 1: [3, 5, 7]}
"""

    def introduces(self, step: Step) -> tuple[str, ...]:
        """The assigned names."""
        return tuple(_assignments(step))

    def evaluate(self, process: Process, step: Step) -> dict[str, Any]:  # noqa: ARG002
        """Evaluate nothing yet: each value may need the one before it."""
        return {"assignments": _assignments(step)}

    def run(self, process: Process, entry: Entry) -> None:
        """Assign in order."""
        for name, form in entry["assignments"].items():
            process.compute(name, form)


def _assignments(step: Step) -> Mapping[str, Form]:
    record = step.arguments["assignments"]
    assert isinstance(record, Record)  # noqa: S101 -- the language makes nothing else of it
    return record.fields
