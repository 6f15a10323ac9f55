"""The `if` around the calls of some ranks, which others decide otherwise."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, Tally, list_values
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import (
    Decision,
)
from torch_scenarios.verdict.finding import ranks_text


def find_condition(
    parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]], *, by_all: bool = False
) -> Reason | None:
    """Return the outermost `if` around the calls of some ranks that others decide otherwise.

    `by_all` leaves out what the others do not come to: they went another way before it.
    """
    for ranks, frames in parted.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        around: list[tuple[Decision, str]] = []
        for file, line, _ in frames:
            source = script_at(file)
            for node, name in source.around(line) if source is not None else ():
                around += [
                    (decision, name)
                    for decision in tallies
                    if _is_of(decision, node, file) and name in {"body", "orelse", "items"}
                ]
        fitting = [
            (decision, name)
            for decision, name in around
            if any(tallies[decision][rank].yes or tallies[decision][rank].no for rank in others)
        ]
        fitting = fitting if fitting or by_all else around
        # a loop that others take too is no condition: they are a turn further on
        fitting = [
            (decision, name)
            for decision, name in fitting
            if decision.kind != "while" or not any(tallies[decision][rank].yes for rank in others)
        ]
        if fitting:
            decision, name = fitting[-1]
            return _explain_decision(parted, decision, tallies[decision], ranks, name)
    return None


def _is_of(decision: Decision, node: ast.stmt, file: str) -> bool:
    """Whether a decision is the condition of a statement, or in the head of a `with`."""
    if decision.file != file or decision.kind not in {"if", "while"}:
        return False
    if isinstance(node, ast.If | ast.While):
        return node.test.lineno == decision.line
    if isinstance(node, ast.With | ast.AsyncWith):
        last = max((each.context_expr.end_lineno or 0 for each in node.items), default=0)
        return node.lineno <= decision.line <= last
    return False


def _explain_decision(
    parted: Parted,
    decision: Decision,
    tallies: Mapping[int, Tally],
    ranks: Sequence[int],
    name: str,
) -> Reason:
    """Return that some ranks go into a condition, with the values that it read on each."""
    place, text = parted.place(decision), decision.text
    verb = "goes" if len(ranks) == 1 else "go"
    alone = " alone" if len(ranks) < len(parted.ranks) else ""
    way = "into the `else` of" if name == "orelse" else "into"
    words = f"{ranks_text(list(ranks))}{alone} {verb} {way} `{text}` ({place})"
    values = list_values(decision, tallies)
    fix = (
        f"let every rank of the group make the calls under `{text}` ({place}), or none: move them "
        "out of the condition, or decide it alike on all ranks."
    )
    return Clause(words + (f", where {values}" if values else "")), fix
