"""A key of the store that a rank sets in some turns, and another one waits for in each.

The rank that sets it goes past the line at times::

    if epoch % save_every == 0:              rank 0 goes in once of 2 times
        store.set(f"ckpt/{epoch}", path)
    else: ...
    store.wait([f"ckpt/{epoch}"])            rank 1 waits here in each turn
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torch_scenarios.record.evidence.choice import times
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import RankRecord


def explain_skipped_key(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return the `if` around a line that sets a key, which its rank goes into at times alone.

    The second line is what mends it. Nothing is returned where no `if` is seen.
    """
    for rank, record in sorted(records.items()):
        ways: dict[tuple[str, int], tuple[int, int]] = {}
        for way in record.ways:
            at = (way.decision.file, way.decision.line)
            yes, no = ways.get(at, (0, 0))
            ways[at] = yes + way.yes, no + way.no
        for change in record.changes:
            for file, line, _ in change.place.frames if change.what == "sets" else ():
                source = script_at(file)
                for node, part in source.find_statements(line) if source is not None else ():
                    if source is None or not isinstance(node, ast.If):
                        continue
                    yes, no = ways.get((file, node.test.lineno), (0, 0))
                    taken = {"body": yes, "orelse": no}.get(part, 0)
                    if not yes or not no or not taken:
                        continue
                    text = source.text(node.lineno)
                    where = source.place(node.lineno, folder)
                    way_in = "into" if part == "body" else "into the `else` of"
                    words = (
                        f"rank {rank} sets such a key ({change.place.short(folder)}) under "
                        f"`{text}` ({where}), and goes {way_in} it {times(taken)} of {yes + no}"
                    )
                    fix = (
                        f"fix: let rank {rank} set the key in each turn in which another rank "
                        f"waits for it, or let that one wait under `{text}` ({where}) too."
                    )
                    return [words, fix]
    return []
