"""Which ranks put nothing into a queue of processes that another one takes from.

A queue gives as many items as are put into it, and who takes one more waits for ever::

    if rank == 0:                          rank 1 does not go in
        queue.put(metrics)

    results = [queue.get() for _ in range(world)]
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torch_scenarios.record.evidence.choice import DecidedParting, list_values
from torch_scenarios.record.evidence.divergence import Parting
from torch_scenarios.record.evidence.script import name_of, place_at, script_at
from torch_scenarios.record.format import RankRecord
from torch_scenarios.verdict.finding import ranks_text

#: methods that put something into a queue, or send it through a pipe
_PUTS = frozenset({"put", "put_nowait"})


def explain_item(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return the `if` around a `put` by which some ranks pass it, and then what helps."""
    parted = DecidedParting(Parting(group="", at=0, calls={}, missing=(*records,)), records, folder)
    for decision, own in parted.tallies(whole=True).items():
        source = script_at(decision.file)
        node = source.condition(decision.line) if source is not None else None
        if decision.kind != "if" or not isinstance(node, ast.If):
            continue
        for part in ("body", "orelse"):
            line = next((line for each in getattr(node, part) if (line := _find_put(each))), 0)
            went = {rank: each.yes if part == "body" else each.no for rank, each in own.items()}
            absent = [rank for rank, count in went.items() if not count]
            if not line or not absent or len(absent) == len(went):
                continue
            place, put = parted.place(decision), place_at(decision.file, line, folder)
            way = "into" if part == "body" else "into the `else` of"
            values = list_values(decision, {rank: own[rank] for rank in absent})
            verb = "does" if len(absent) == 1 else "do"
            words = f"{ranks_text(absent)} {verb} not go {way} `{decision.text}` ({place}), where "
            words += f"{'it' if len(absent) == 1 else 'they'} would put something ({put})"
            fix = f"fix: take as many items as are put, or let {ranks_text(absent)} put one too: "
            fix += f"move the `put` ({put}) out of the `if` ({place})."
            return [words + (f"; {values}" if values else ""), fix]
    return []


def _find_put(node: ast.stmt) -> int:
    """Return the line of a statement that puts something into a queue; 0 for none."""
    return next(
        (
            each.lineno
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and name_of(each.func) in _PUTS
        ),
        0,
    )
