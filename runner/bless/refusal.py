"""Why a file is not blessed: a stable code, a sentence, and the place where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

#: code -> what it says in general
CODES = {
    "program_hangs": "the program hangs, and the file does not say so",
    "program_crashes": "a process ends, and the file does not say so",
    "program_raises": "a rank raises what no step expects",
    "wrong_program": "the analysis finds something wrong with the program",
    "value_undefined": "no value may be relied on there",
    "cases_differ": "one text serves several cases of the matrix, and they differ",
    "rounds_differ": "one text serves all rounds of a loop, and they differ",
    "value_too_large": "the value is too large to be written out",
    "used_part": "the expectation stands in a part that several scenarios use",
    "backend_section": "the expectation stands in the section of one backend",
    "shared_value": "the value has an anchor, an alias or a tag",
    "nothing_written": "the step writes nothing that could be expected",
    "reference_disagrees": "the reference and the run disagree",
    "runs_differ": "two runs differ",
    "not_proved": "the expectations would not hold",
    "cannot_run": "the backend at hand cannot run the scenario",
    "left_open": "the environment, or a bound of the analysis, left it open",
    "unresolved_conflict": "the file holds the marks of a conflict that was not resolved",
    "file_changed": "the file changed meanwhile",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason not to bless a file; `code` is a key of :data:`CODES`, `line` counts from 1."""

    code: str
    message: str
    line: int | None = None


class RefusedError(Exception):
    """A file is not blessed. Carries the reasons."""

    def __init__(self, *refusals: Refusal) -> None:
        """Keep the reasons."""
        self.refusals = refusals
        super().__init__("; ".join(refusal.message for refusal in refusals))


def refuse(code: str, message: str, line: int | None = None) -> NoReturn:
    """Raise RefusedError for one reason."""
    raise RefusedError(Refusal(code=code, message=message, line=line))
