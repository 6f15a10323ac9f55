"""A `squeeze()` that takes away the dimension of the batch as well, where that has one row.

scores = net(x).squeeze()       [8, 1] becomes [8] on rank 0, and [1, 1] a number on rank 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.script import Script, script_at
from torch_scenarios.record.format import RecordedCall
from torch_scenarios.verdict.finding import ranks_text


def find_lost_dimension(parted: DecidedParting) -> Reason | None:
    """Return the `squeeze()` of the scripts, where some ranks alone pass a number for a tensor.

    None where all pass tensors of as many dimensions, or where several lines squeeze. The ranks are
    in one line of the script, and part in the framework that it calls.
    """
    lines = {call.place.frames[:1] for call in parted.parting.calls.values()}
    if len(lines) != 1 or not all(call.place.via for call in parted.parting.calls.values()):
        return None
    calls = {
        rank: call
        for rank, call in parted.parting.calls.items()
        if isinstance(call, RecordedCall) and (call.inputs or call.outputs)
    }
    lone = [rank for rank, call in calls.items() if not (call.inputs or call.outputs)[0].shape]
    if not lone or len(lone) == len(calls):
        return None
    files = dict.fromkeys(file for _, at in parted.parting.sides for file, _, _ in at)
    own = [source for source in map(script_at, files) if source is not None]
    scripts = {each.file: each for one in own for each in (one, *one.imported())}
    found = [(each, line) for each in scripts.values() for line in _list_squeezed(each)]
    if len(found) != 1:
        return None
    source, line = found[0]
    place = source.place(line, parted.folder)
    verb = "passes" if len(lone) == 1 else "pass"
    words = (
        f"{ranks_text(lone)} {verb} a number where others pass a tensor: `{source.text(line)}` "
        f"({place}) takes away the dimension of the batch too, where that has one row"
    )
    return Clause(words), f"name the dimension at {place}: `.squeeze(-1)`, or `.flatten()`."


def _list_squeezed(source: Script) -> Iterator[int]:
    """Yield the lines that take away every dimension of one item."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            continue
        if getattr(node.func, "attr", "") in {"squeeze", "squeeze_"}:
            yield node.lineno
