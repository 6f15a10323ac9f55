"""A key of the store that ranks count up in each round, while a loop waits for one number of it.

A barrier by hand holds once, and never again::

    store.add("ready", 1)                          2 ranks: 2, and in the next round 4
    while int(store.get("ready")) != world:        waits for 2
        time.sleep(0.01)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torch_scenarios.record.evidence.script import place_at, script_at
from torch_scenarios.record.format import RankRecord, ScriptPlace


def explain_counted_key(
    records: Mapping[int, RankRecord], at: tuple[str, ast.While], test: ast.expr, folder: str
) -> list[str]:
    """Return the key of the store that a loop waits to have one number, and that has passed it.

    Each rank counts it up in each round, and the loop has ended in a round before.
    """
    file, loop = at
    is_of_loop = test is loop.test
    compares = test.ops[0] if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
    if not isinstance(compares, ast.NotEq if is_of_loop else ast.Eq):
        return []
    over = {
        rank: sum(
            way.no if is_of_loop else way.yes
            for way in record.ways
            if (way.decision.file, way.decision.line) == (file, test.lineno)
        )
        for rank, record in records.items()
    }
    asked = {
        each.path
        for record in records.values()
        for each in record.changes
        if each.what in {"awaits", "sets"} and each.place.frames[:1]
        if each.place.frames[0][:2] == (file, test.lineno)
    }
    for key in sorted(asked if over and min(over.values()) else ()):
        counts = [
            each.place
            for record in records.values()
            for each in record.changes
            if each.what == "sets" and each.path == key and _counts_up(each.place)
            if each.place.frames[0][:2] != (file, test.lineno)
        ]
        if len(counts) < len(records):
            continue
        where, place = counts[0].short(folder), place_at(file, test.lineno, folder)
        words = (
            f"all ranks count up the key `{key}` of the store ({where}) in each round, and "
            f"`{ast.unparse(test)}` ({place}) waits for one number: in the round before it was "
            "that, and now it is more"
        )
        fix = (
            f"give each round its own key ({where}), as by its number, or let the loop at "
            f"{place} end by `>=` and a number that grows with the rounds."
        )
        return [words, f"fix: {fix}"]
    return []


def _counts_up(place: ScriptPlace) -> bool:
    """Whether a line adds to a key of the store."""
    file, line, _ = place.frames[0] if place.frames else ("", 0, "")
    source = script_at(file)
    return source is not None and "add" in source.called(line)
