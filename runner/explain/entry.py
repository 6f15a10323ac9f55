"""One explanation: a code, what it means, an example, the fix."""

from __future__ import annotations

from dataclasses import dataclass

# -------------------------------------------------------------------------------------------------
# One explanation.


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


# -------------------------------------------------------------------------------------------------
# Explanations of problems: a small wrong file, and what is right in place of it.

RIGHT = """\
world_size: 2
parameters: {width: 3}
tensors:
  x: "full(width, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: sum}
    expect:
      x: "full(width, 3)"
"""


def problem(
    code: str, what: str, why: str, fix: str, example: str = "", *, right: str = RIGHT
) -> Explanation:
    """Return the explanation of a problem; `right` is what mends every example of its kind."""
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why=why,
        fix=fix,
        example=example,
        fixed=right if example else "",
    )


def value(text: str) -> str:
    """Return a file with one tensor of this value."""
    return f"world_size: 2\ntensors:\n  x: {text}\nsteps:\n  - barrier: {{}}\n"


def step(text: str) -> str:
    """Return a file with this one step."""
    return f"world_size: 2\ntensors:\n  x: [1, 2]\nsteps:\n  - {text}\n"
