"""A flag that shows an end to the others, and is reduced once more by those that have seen it.

A rank that has left a loop by `break` does what is behind it, too::

    for batch in batches:
        if done(0):            rank 1 leaves here, since rank 0 is at its end
            break
        step(batch)
    done(1)                    rank 0 shows it here; rank 1 comes here as well
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.script import Script, list_blocks, name_of, script_at
from torch_scenarios.verdict.finding import ranks_text


def find_repeated_end(parted: DecidedParting) -> Reason | None:
    """Return the call behind a loop that shows its end, where the ranks part that see it.

    They are in the condition of the `break`, and come to the same call after it.
    """
    for shown, frames in parted.parting.sides:
        for file, line, _ in frames:
            source = script_at(file)
            node = source.condition(line) if source is not None else None
            if source is None or not isinstance(node, ast.If):
                continue
            if not isinstance(node.body[-1], ast.Break):
                continue
            asked = {name_of(e.func) for e in ast.walk(node.test) if isinstance(e, ast.Call)}
            for loop, call in _list_behind(source, line):
                showing = [
                    rank
                    for ranks, at in parted.parting.sides
                    if any((file, call.lineno) == each[:2] for each in at)
                    for rank in ranks
                ]
                if showing and name_of(call.func) in asked:
                    return _tell(parted, (source, loop, node, call), shown, showing)
    return None


def _list_behind(source: Script, line: int) -> Iterator[tuple[ast.For | ast.While, ast.Call]]:
    """Yield the calls right behind the innermost loop around a line, with the loop."""
    around = [node for node, part in source.find_statements(line) if part == "body"]
    loop = next((each for each in around if isinstance(each, ast.For | ast.While)), None)
    for block in list_blocks(source.scope(line)) if loop is not None else ():
        if loop in block:
            for each in block[block.index(loop) + 1 :]:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                    yield loop, each.value


def _tell(
    parted: DecidedParting,
    found: tuple[Script, ast.For | ast.While, ast.If, ast.Call],
    shown: list[int],
    showing: list[int],
) -> Reason:
    source, loop, node, call = found
    loop_at, way_at, call_at = (
        source.place(at, parted.folder) for at in (loop.lineno, node.test.lineno, call.lineno)
    )
    text = ast.unparse(call)
    sees = "sees" if len(shown) == 1 else "see"
    shows = "shows" if len(showing) == 1 else "show"
    leaves, comes = ("leaves", "comes") if len(shown) == 1 else ("leave", "come")
    words = (
        f"{ranks_text(showing)} {shows} by `{text}` ({call_at}), behind the loop at {loop_at}, "
        f"that it is over; {ranks_text(shown)} {sees} it in `if {ast.unparse(node.test)}` "
        f"({way_at}), {leaves} by its `break`, and {comes} to `{text}` as well: that is one call "
        f"more than {ranks_text(showing)} {'makes' if len(showing) == 1 else 'make'}"
    )
    fix = (
        f"put `{text}` ({call_at}) into an `else:` of the loop at {loop_at}: a rank that sees "
        "the end there need not show it again."
    )
    return Clause(words), fix
