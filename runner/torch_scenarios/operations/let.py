"""`let`: names numbers, on each rank that takes the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form, Record
from torch_scenarios.operations.base import Caller, Entry, Local


class Let(Local):
    """Name numbers and lists of numbers, in order, on each rank that takes the step.

    A name that an enclosing list of steps has named is assigned there, as in Python; a new one ends
    with its list, and with each turn of a loop. Nothing communicates or compares what it names.
    """

    name = "let"
    bare = "numbers"
    params = (
        Param(
            name="numbers",
            kind="numbers",
            required=True,
            description="Names and the number, or the list of numbers, that each means.",
        ),
    )
    source = "Python's assignment"
    example = """\
world_size: 4
tensors:
  x: "full(1, rank)"
steps:
  - let: {half: "world_size // 2", other: "(rank + half) % world_size"}
  - compute: {x: "full(1, other)"}
    expect:
      x: {0: [2], 1: [3], 2: [0], 3: [1]}
"""

    def numbers(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The names."""
        return tuple(_read_names(given))

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate nothing yet: each may need the one before it."""
        return {"numbers": _read_names(given)}

    def run(self, caller: Caller, entry: Entry) -> None:
        """Name them in order."""
        for name, form in entry["numbers"].items():
            caller.let(name, form)


def _read_names(given: Mapping[str, Form]) -> Mapping[str, Form]:
    record = given["numbers"]
    assert isinstance(record, Record)
    return record.fields
