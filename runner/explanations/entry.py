"""One explanation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a code means. `example` and `fixed` are whole scenario files, or empty.

    `sort` is `problem` (the file is INVALID), `diagnosis` (the program is wrong), `finding` (a
    scenario is FAILED), `warning` (it passes and should be looked at), `kind of error` (what
    `raises:` states) or `refusal to bless`.
    """

    code: str
    sort: str
    what: str
    why: str = ""
    fix: str = ""
    example: str = ""
    fixed: str = ""


def diagnosis(code: str, what: str, why: str, fix: str, example: str, fixed: str) -> Explanation:
    """Return the explanation of a diagnosis."""
    return Explanation(
        code=code, sort="diagnosis", what=what, why=why, fix=fix, example=example, fixed=fixed
    )
