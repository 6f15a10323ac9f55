"""`compute`: changes what a rank holds, locally."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form, Record
from torch_scenarios.operations.base import Caller, Entry, Local


class Compute(Local):
    """Assign expressions to names, in order. A name may be new; a result never shares memory.

    `"x[2:4]"` in the place of a name stores into that part of `x`, in place: the right side is
    computed first, broadcast and cast as torch's `copy_` does.

    `compute: {time: 12.1ms}` represents kernels: it changes nothing, takes no time in a run, and so
    long in what `scenario cost` forecasts. `host: 3ms` next to it is what the rank's host takes to
    start them: they end no sooner than it has done so. With `synchronize: true` the host waits for
    them then, as `.item()` and `torch.cuda.synchronize()` do, and starts none meanwhile.
    """

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
        parts = _parts(given)
        names = _assignments(given)
        return tuple(name for name in names if name not in parts) if parts else tuple(names)

    def find_shared(self, given: Mapping[str, Form]) -> Mapping[str, Form]:
        """What is read, and under `parts` the tensors of which a part is stored into."""
        return given

    def find_written(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The tensors of which a part is stored into."""
        return roots.get(PARTS, frozenset())

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate nothing yet: each value may need the one before it."""
        stated = {name: caller.evaluate(given[name]) if name in given else None for name in STATED}
        return {"assignments": _assignments(given), PARTS: _parts(given), **stated}

    def costs(self, entry: Entry) -> Mapping[str, float]:
        """What is stated of kernels and their host; nothing on a rank that has none."""
        return {field: entry.arguments.get(name) or 0.0 for name, field in STATED.items()}

    def run(self, caller: Caller, entry: Entry) -> None:
        """Assign in order."""
        parts = entry[PARTS]
        for name, form in entry["assignments"].items():
            if name in parts:
                caller.store(parts[name], form)
            else:
                caller.compute(name, form)


#: the argument that has the parts of tensors among the names, each as an expression
PARTS = "parts"
#: the argument that has the time that represents kernels
TIME = "time"
#: the argument that has the time in which a host starts them
HOST = "host"
#: the argument that says that the host waits for them then
SYNCHRONIZE = "synchronize"
#: what these are in a forecast
STATED = {TIME: "seconds", HOST: "host_s", SYNCHRONIZE: "synchronizes"}


def _assignments(given: Mapping[str, Form]) -> Mapping[str, Form]:
    record = given["assignments"]
    assert isinstance(record, Record)
    return record.fields


def _parts(given: Mapping[str, Form]) -> Mapping[str, Form]:
    record = given.get(PARTS)
    return record.fields if isinstance(record, Record) else {}
