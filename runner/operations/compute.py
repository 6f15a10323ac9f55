"""`compute`: changes what a rank holds, locally."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.expressions.params import Param
from runner.expressions.values import Form, Record
from runner.operations.base import Caller, Entry, Local


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

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The assigned names."""
        return tuple(_assignments(given))

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate nothing yet: each value may need the one before it."""
        return {"assignments": _assignments(given)}

    def run(self, caller: Caller, entry: Entry) -> None:
        """Assign in order."""
        for name, form in entry["assignments"].items():
            caller.compute(name, form)


def _assignments(given: Mapping[str, Form]) -> Mapping[str, Form]:
    record = given["assignments"]
    assert isinstance(record, Record)
    return record.fields
