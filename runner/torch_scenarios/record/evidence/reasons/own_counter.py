"""What a `while` reads, which each rank sets in its own way: ranks count something else.

A loop that goes on until enough is seen ends in another turn where ranks do not count alike::

    while tokens < budget:
        if rank == 0:
            tokens += ids.numel()            24 on rank 0: it counts the padding too
        else:
            tokens += int(mask.sum())        21 on rank 1
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from torch_scenarios.record.evidence.choice import DecidedParting
from torch_scenarios.record.evidence.script import Script, end_of, script_at
from torch_scenarios.record.format import SetValue
from torch_scenarios.verdict.finding import ranks_text


def tell_counter(parted: DecidedParting, at: tuple[str, int]) -> tuple[str, str]:
    """Return how ranks set what a `while` reads, where they do not do so alike, and its name.

    They set it in other lines of the loop, or in one line to other values. Both are empty where
    nothing is unlike.
    """
    source = script_at(at[0])
    node = source.find_loop(at[1]) if source is not None else None
    if source is None or not isinstance(node, ast.While):
        return "", ""
    read = [each for each in ast.walk(node.test) if isinstance(each, ast.Name | ast.Attribute)]
    for name in dict.fromkeys(map(ast.unparse, read)):
        loop = (at[0], node.lineno, end_of(node))
        sets = {rank: _list_sets(parted, rank, loop, name) for rank in parted.ranks}
        sets = {rank: own for rank, own in sets.items() if own}
        words = _tell_lines(sets, source, parted.folder) or _tell_values(sets)
        if words:
            return f"`{name}` is {words}", name
    return "", ""


def _tell_lines(sets: Mapping[int, Sequence[SetValue]], source: Script, folder: str) -> str:
    """Return the line by which each rank sets a variable, where these are other ones."""
    alike: dict[str, list[int]] = {}
    for rank, own in sets.items():
        first = min(each.place.line for each in own)
        alike.setdefault(source.quote(first, folder), []).append(rank)
    ways = ", ".join(f"by {line} on {ranks_text(who)}" for line, who in alike.items())
    return f"set {ways}" if len(alike) > 1 else ""


def _tell_values(sets: Mapping[int, Sequence[SetValue]]) -> str:
    """Return the first values of a variable that are unlike where it is set in one line."""
    for turn in zip(*sets.values(), strict=False) if len(sets) > 1 else ():
        values = ["; ".join(each.words) for each in turn]
        if len({*values}) > 1:
            held = zip(sets, values, strict=True)
            shown = ", ".join(f"{value} on {ranks_text([rank])}" for rank, value in held)
            return f"{shown} (`{turn[0].place.text}`, :{turn[0].place.line})"
    return ""


def _list_sets(
    parted: DecidedParting, rank: int, loop: tuple[str, int, int], name: str
) -> list[SetValue]:
    """Return what a rank has set a variable to in a loop, in its order."""
    file, first, last = loop
    return [
        each
        for each in parted.records[rank].values
        if each.place.file == file and first < each.place.line <= last
        if each.place.names[:1] == (name,)
    ]
