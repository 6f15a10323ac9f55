"""A call of a compiled function: its place is the function's first line, whatever its `if`s say."""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, short
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import RecordedCall
from torch_scenarios.verdict.finding import ranks_text


def find_compiled(parted: Parted) -> Reason | None:
    """Return the `if` of a compiled function around the call that some ranks make in it."""
    for ranks, frames in parted.parting.sides:
        call = parted.parting.calls[ranks[0]]
        if not frames or not isinstance(call, RecordedCall) or len(ranks) == len(parted.ranks):
            continue
        file, line, _ = frames[0]
        source = script_at(file)
        scope = source.compiled(line) if source is not None else None
        for node in ast.walk(scope) if scope is not None else ():
            if isinstance(node, ast.If) and call.operation in ast.unparse(node):
                verb = "communicates" if len(ranks) == 1 else "communicate"
                text = ast.unparse(node.test)
                place = short(((file, node.lineno, ""),), parted.folder)
                words = (
                    f"{ranks_text(ranks)} alone {verb} in `{scope.name}`, which is compiled: "  # type: ignore[union-attr]
                    f"each rank compiles its own way through `if {text}` ({place})"
                )
                fix = f"decide `{text}` ({place}) alike on all ranks."
                return Clause(words), fix
    return None
