"""In which order a scenario's names get their values, and what is told of a name used too early.

Parameters first, then groups, objects, tensors, each in the order of the file; then the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.language.context import Context
    from runner.language.namespace import Definition
    from runner.problems import Mark

#: sort of definition -> how early, and what all of its sort are called
_MADE = {
    "matrix key": (0, "parameters"),
    "parameter": (0, "parameters"),
    "group": (1, "groups"),
    "object": (2, "objects"),
    "tensor": (3, "tensors"),
    "computed name": (4, "steps"),
    "new group": (4, "steps"),
}


@dataclass(frozen=True, slots=True)
class Later:
    """Why a name has no value yet, and what to do."""

    reason: str
    hint: str


def unmade(section: str, found: Sequence[Definition]) -> dict[str, Later]:
    """Return what has no value while the first entry of a section is made.

    `section` is the plural, such as `tensors`; whoever makes an entry takes its name out.
    """
    now = next(early for early, plural in _MADE.values() if plural == section)
    later: dict[str, tuple[int, Later]] = {}
    for each in found:
        early, plural = _MADE.get(each.sort, (now, ""))
        if not plural or early < now or (each.name in later and later[each.name][0] <= early):
            continue
        line = each.node.mark.line
        if early == now:
            reason = f"is made further down (line {line})"
            hint = f"{section} are made in the order of the file: move it up"
        elif plural == "steps":
            reason = f"is made by a step (line {line}), after the {section}"
            hint = "give it a value at the top first, or compute this in a step"
        else:
            reason = f"is a {each.sort} (line {line}), and {section} are made before {plural}"
            hint = f"state it in numbers, or compute this where {plural} are known"
        later[each.name] = early, Later(reason, hint)
    return {name: why for name, (_, why) in later.items()}


def note_unmade(name: str, mark: Mark, context: Context) -> None:
    """Note an expression that reads a name too early; call for names in `context.unmade` only."""
    why = context.unmade[name]
    if name == context.making:
        why = Later("is made here, so it has no value yet", "`compute:` changes a value in a step")
    context.faults.add("not_made_yet", f"`{name}` {why.reason}", mark, why.hint)
