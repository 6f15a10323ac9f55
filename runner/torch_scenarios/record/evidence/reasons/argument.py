"""Where a root that differs between ranks comes from, by the text of the call."""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.divergence import Parting
from torch_scenarios.record.evidence.script import script_at

#: arguments that name one rank
_ROOTS = frozenset({"src", "dst", "group_src", "group_dst"})
#: where functions take it by position
_POSITIONS = {
    **dict.fromkeys(("broadcast", "reduce", "broadcast_object_list"), 1),
    **dict.fromkeys(("gather", "scatter", "gather_object", "scatter_object_list"), 2),
}


def find_argument(parting: Parting, folder: str) -> Reason | None:
    """Return the line that sets the root that ranks pass in one line; None where none is seen."""
    frames = next((at for _, at in parting.sides), ())
    for file, line, _ in frames[:1]:
        source = script_at(file)
        value = source.argument(line, _ROOTS, _POSITIONS) if source is not None else None
        if source is None or value is None:
            continue
        text, set_at = ast.unparse(value), source.assignment(value, line)
        place = short(((file, set_at or line, ""),), folder)
        words = f"the root is `{text}`"
        if set_at:
            words += f", which is set by `{source.text(set_at)}` ({place})"
            if "hash(" in source.text(set_at):
                words += ": the hash of a string is another one in each process"
        fix = (
            f"let `{text}` ({place}) be the same rank of the world on all ranks; "
            "`dist.get_global_rank(group, 0)` is the first of a group."
        )
        return Clause(words), fix
    return None
