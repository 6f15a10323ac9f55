"""`sleep`: time passes on one rank."""

from __future__ import annotations

from torch_scenarios.expressions.params import Param
from torch_scenarios.operations.base import Caller, Entry, Local


class Sleep(Local):
    """Let time pass on the selected ranks: a straggler, or work that is left out."""

    name = "sleep"
    bare = "duration"
    params = (
        Param(
            name="duration",
            kind="seconds",
            required=True,
            description="How long: 0.5s, 200ms, or an expression in seconds.",
        ),
    )
    source = "time.sleep"
    example = """\
world_size: 2
steps:
  - sleep: "rank * 0.1"
    expect:
      elapsed: {1: {min: 0.1s}}
"""

    def duration_s(self, entry: Entry) -> float:
        """The stated time; nothing on a rank that has none."""
        return float(entry["duration"] or 0.0)

    def run(self, caller: Caller, entry: Entry) -> None:
        """Change nothing; the executor lets the time pass."""
