"""Calls that tasks of an event loop make: each rank runs them in another order."""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, short
from torch_scenarios.record.evidence.script import script_at


def find_coroutine(parted: DecidedParting) -> Reason | None:
    """Return the coroutine whose tasks make the calls of ranks that part; None for any other."""
    for _, frames in parted.sides:
        for file, line, _ in frames[:1]:
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            if isinstance(scope, ast.AsyncFunctionDef):
                place = short(((file, scope.lineno, ""),), parted.folder)
                words = (
                    f"`{scope.name}` ({place}) is a coroutine: each rank's event loop runs its "
                    "tasks in an order of its own, by what is there first"
                )
                fix = (
                    f"let no task communicate by itself ({short(frames, parted.folder)}): await "
                    "what is slow, and then communicate in one order on all ranks."
                )
                return Clause(words), fix
    return None
