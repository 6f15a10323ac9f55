"""`fault`: the selected ranks fail here."""

from __future__ import annotations

from torch_scenarios.expressions.params import Param
from torch_scenarios.operations.base import Caller, Entry, Local, ProcessExit, ProgramError


class Fault(Local):
    """Let the selected ranks fail: by SIGKILL, by exit code 1, or by an exception."""

    name = "fault"
    bare = "how"
    params = (
        Param(
            name="how",
            kind="word",
            required=True,
            words=("kill", "exit", "raise"),
            worded=("raise",),
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
        return f"{self.name} {_word_and_message(entry)[0]}"

    def ends(self, entry: Entry) -> bool:
        """The rank's program ends here, unless its step expects the exception."""
        return True

    def run(self, caller: Caller, entry: Entry) -> None:
        """Raise what ends the process, or the program's own error."""
        word, message = _word_and_message(entry)
        if word == "raise":
            raise ProgramError(message)
        raise ProcessExit(ENDINGS[word])


ENDINGS = {"kill": "SIGKILL", "exit": "exit 1"}


def _word_and_message(entry: Entry) -> tuple[str, str]:
    how = entry["how"]
    if isinstance(how, dict):
        ((word, message),) = how.items()
        return str(word), str(message)
    return str(how), "a fault that the scenario asked for"
