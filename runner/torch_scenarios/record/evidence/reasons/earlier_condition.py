"""The last `if` before ranks part that they decide otherwise."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, Tally, count_turns, list_values
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import (
    Decision,
)


def find_other_way(
    parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]
) -> Reason | None:
    """Return the last `if` of the same function that ranks decide otherwise, as a hint."""
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            if source is None:
                continue
            fitting = [
                decision
                for decision in tallies
                if decision.kind == "if"
                and decision.file == file
                and decision.line <= line
                and source.scope(decision.line) is source.scope(line)
            ]
            if not fitting:
                continue
            decision = max(fitting, key=lambda each: each.line)
            own = tallies[decision]
            values = list_values(decision, own)
            words = f"{count_turns(parted, decision, own)}" + (
                f", where {values}" if values else ""
            )
            return Clause(words), _advice(parted, decision)
    return None


def find_last_decided(
    parted: Parted, *, by_all: bool = False, whole: bool = False
) -> Reason | None:
    """Return the last `if` before they part that ranks decide otherwise, as in a callback.

    `by_all` says that each rank has to come to it, `whole` looks from the beginning on.
    """
    tallies = parted.tallies(whole=whole)
    decided = [
        decision
        for decision, own in tallies.items()
        if decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
    ]
    # what some ranks do not come to follows from what they decided before
    known = [each for each in decided if all(e.yes or e.no for e in tallies[each].values())]
    decided = known if known or by_all else decided
    if not decided:
        return None
    decision = decided[-1]
    own = tallies[decision]
    values = list_values(decision, own)
    words = f"before that, {count_turns(parted, decision, own)}"
    return Clause(words + (f", where {values}" if values else "")), _advice(parted, decision)


def _advice(parted: Parted, decision: Decision) -> str:
    """Return what to change; nothing for ranks of one line, where what they pass is the mistake."""
    if len(parted.sides) < 2 and not parted.parting.missing:
        return ""
    return f"decide `{decision.text}` ({parted.place(decision)}) alike on all ranks."


def is_idle(decision: Decision) -> bool:
    """Whether an `if` does nothing but print or log, which decides nothing that comes later."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    return isinstance(node, ast.If) and not node.orelse and all(map(_speaks, node.body))


#: calls that tell a person something
_SPEECH = frozenset(
    {"print", "debug", "info", "warning", "warn", "error", "log", "write", "set_postfix", "update"}
)


def _speaks(node: ast.stmt) -> bool:
    """Whether a statement prints or logs what is known already."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _SPEECH
