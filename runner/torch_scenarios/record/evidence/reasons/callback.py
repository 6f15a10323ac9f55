"""A function that a library calls, and more often on some ranks.

A line search is one: it calls the closure that it is passed until what that returns is small::

    optimizer.step(closure)      rank 1 is in the 13th `closure`, rank 0 is past the line
"""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.script import Script, name_of, place_at, script_at
from torch_scenarios.verdict.finding import ranks_text


def find_callback(parted: DecidedParting) -> Reason | None:
    """Return the function, passed in one line, that a library still calls on some ranks alone.

    The others have come through that line before, and are past it.
    """
    for ranks, frames in parted.sides if len(parted.sides) > 1 else ():
        others = [rank for rank in parted.ranks if rank not in ranks]
        for at, (file, line, _) in enumerate(frames[1:]):
            source, inner = script_at(file), frames[at]
            made = _find_function(inner)
            call = _find_passing(source, line, made.name) if source and made else None
            outer = (file, line)
            if made is None or call is None or _is_there(parted, others, outer):
                continue
            if all(_has_been_there(parted, rank, outer) for rank in others):
                return _explain(parted, ranks, (inner[0], made), outer, call)
    return None


def _find_function(frame: tuple[str, int, str]) -> ast.FunctionDef | None:
    source = script_at(frame[0])
    scope = source.scope(frame[1]) if source is not None else None
    return scope if isinstance(scope, ast.FunctionDef) else None


def _find_passing(source: Script, line: int, name: str) -> ast.Call | None:
    """Return the call of a line that passes a function to a library's."""
    first, last = source.span(line)
    for call in ast.walk(source.tree):
        if not isinstance(call, ast.Call) or not first <= call.lineno <= last:
            continue
        given = [*call.args, *(each.value for each in call.keywords)]
        is_passed = any(name_of(each) == name for each in given)
        if is_passed and next(source.functions(name_of(call.func)), None) is None:
            return call
    return None


def _passes(frames: Frames, outer: tuple[str, int]) -> bool:
    return any((file, line) == outer for file, line, _ in frames)


def _is_there(parted: DecidedParting, ranks: list[int], outer: tuple[str, int]) -> bool:
    """Whether one of some ranks is in a line where they part."""
    return any(
        _passes(frames, outer) for who, frames in parted.sides for rank in who if rank in ranks
    )


def _has_been_there(parted: DecidedParting, rank: int, outer: tuple[str, int]) -> bool:
    return any(_passes(call.place.frames, outer) for call in parted.records[rank].calls)


def _explain(
    parted: DecidedParting,
    ranks: list[int],
    function: tuple[str, ast.FunctionDef],
    outer: tuple[str, int],
    call: ast.Call,
) -> Reason:
    file, made = function
    text, there = ast.unparse(call), place_at(*outer, parted.folder)
    where = place_at(file, made.lineno, parted.folder)
    words = f"`{text}` ({there}) calls `{made.name}` ({where}) more often on {ranks_text(ranks)}"
    given = [
        node for node in ast.walk(made) if isinstance(node, ast.Return) and node.value is not None
    ]
    if not given:
        return Clause(words), f"let `{made.name}` be called as often on all ranks ({there})."
    value = ast.unparse(given[-1].value or made)
    place = place_at(file, given[-1].lineno, parted.folder)
    words += f", by what that returns: `{value}` ({place}), which is each rank's own"
    fix = (
        f"let `{made.name}` return the same on all ranks ({place}): reduce `{value}` over them, as "
        f"`{name_of(call.func)}` decides by it how often it calls the function."
    )
    return Clause(words), fix
