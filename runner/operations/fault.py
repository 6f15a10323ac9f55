"""`fault`: the selected ranks fail here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.base import Ending, Entry, Local, ProgramError
from runner.operations.params import Param

if TYPE_CHECKING:
    from runner.program import Process


class Fault(Local):
    """Let the selected ranks fail: by SIGKILL, by exit code 1, or by an exception."""

    name = "fault"
    bare = "how"
    params = (
        Param(
            name="how",
            kind="word",
            required=True,
            words=("kill", "exit"),
            mapping="raise",
            description="`kill` (SIGKILL), `exit` (exit code 1), or `{raise: message}`.",
        ),
    )
    source = "the scenario language"
    example = """\
world_size: 2
steps:
  - ranks: 1
    fault: {raise: out of luck}
    expect:
      raises: {other: out of luck}
"""

    def label(self, entry: Entry) -> str:
        """`fault kill`."""
        how = entry["how"]
        return f"{self.name} {how if isinstance(how, str) else 'raise'}"

    def run(self, process: Process, entry: Entry) -> None:  # noqa: ARG002 -- nothing else is touched
        """Raise what ends the process, or the program's own error; None does nothing."""
        how = entry["how"]
        if isinstance(how, dict):
            raise ProgramError(str(how["raise"]))
        if how is not None:
            raise Ending(ENDINGS[how])


ENDINGS = {"kill": "SIGKILL", "exit": "exit 1"}
