"""What would be right, for problems whose own words leave it open: every problem has a hint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.problems import Problem

#: code -> what would be right, where the place says nothing better
HINTS = {
    "bad_expectation": "write a name or an expression, and below it what it must be",
    "bad_key": "a key is a name, a number or a list of ranks",
    "bad_scalar": "leave the tag out, or write a value that fits it",
    "bad_world_size": "write a number such as `world_size: 2`",
    "duplicate_argument": "keep one of the two spellings",
    "duplicate_case": "keep it once",
    "duplicate_name": "give one of them another name",
    "empty_steps": "add a step, such as `- barrier: {}`",
    "expression_not_allowed": "numbers, names, arithmetic, indexing, list comprehensions and calls"
    " of the language's own functions are allowed",
    "expression_syntax": "expressions have Python's syntax",
    "handle_without_work": "leave `as` out",
    "loop_too_long": "run over fewer values; one round shows what a thousand show",
    "missing_value": "state it, or leave the key out",
    "nesting": "a scenario needs few levels; state large values as expressions",
    "not_constant": "it is the same on every rank; what differs stands in tensors and steps",
    "recursive_alias": "write the value out",
    "too_many_cases": "split the matrix over several files",
    "too_many_ranks": "fewer ranks show the same; `world_size` may be a parameter",
    "too_many_steps": "repeat steps with `for`",
    "unknown_function": "`scenario explain unknown_function` lists all there are",
    "unknown_handle": "name the work with `as` beside the asynchronous step",
    "unknown_name": "define it under `parameters:`, `tensors:`, `objects:` or `groups:`",
    "use_cycle": "a used file cannot need itself; let both use a third",
    "use_too_deep": "name the innermost file directly",
}


def hinted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, each with a hint."""
    return tuple(
        problem if problem.hint else replace(problem, hint=_general(problem.code))
        for problem in problems
    )


def _general(code: str) -> str:
    return HINTS.get(code, f"`scenario explain {code}` shows an example, and the fix")
