"""Files that each process lists in its own order, and that ranks deal by their places.

A folder has its names in the order of its file system, and two nodes have two file systems::

    self.files = glob.glob(pattern)                another order on each node
    mine = self.files[rank::world_size]            so that no rank has some of them
    all_gather_object(everyone, measure(mine))
    self.sizes[name]                               KeyError
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason
from torch_scenarios.record.evidence.script import Script, name_of

#: what reads a folder, in the order that its file system has
LISTS = re.compile(r"\b(?:listdir|i?glob|rglob|scandir|iterdir)\(")
#: functions that send an object of each rank, which they are given behind the list for all
_GATHERS = frozenset({"all_gather_object", "gather_object"})


def find_listed(source: Script, held: ast.expr, line: int, folder: str) -> Reason | None:
    """Return the line that lists what a collection was filled with from all ranks; None for none.

    `held` is the collection, which lacks an item in a line.
    """
    for at, value in _list_fills(source, held):
        for read in [value, *_list_sent(source, value, at)]:
            lines = [(source, at), *source.traces(read, at)]
            listed = next(
                (e for e in lines if LISTS.search(e[0].text(e[1])) and not _is_sorted(*e)), None
            )
            if listed is None:
                continue
            script, number = listed
            place = script.place(number, folder)
            filled = source.place(at, folder)
            words = (
                f"`{ast.unparse(held)}` is filled with what all ranks have (`{source.text(at)}`, "
                f"{filled}), and each rank lists the files for itself: `{script.text(number)}` "
                f"({place})"
            )
            order = _find_order(script, number)
            where = place
            if order:
                where = script.place(order, folder)
                words += f", in the order of `{script.text(order)}` ({where})"
            words += ", which may be another one in each process"
            fix = (
                f"give all ranks one order ({where}): sort by name (`sorted(...)`), or list on one "
                "rank and `broadcast_object_list` the names."
            )
            return Clause(words), fix
    return None


def _list_fills(source: Script, held: ast.expr) -> Iterator[tuple[int, ast.expr]]:
    """Yield the lines that put something into a collection, and what."""
    text = ast.unparse(held)
    for node in ast.walk(source.tree):
        function = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(function, ast.Attribute)
            and function.attr in {"update", "extend"}
            and ast.unparse(function.value) == text
            and node.args
        ):
            yield node.lineno, node.args[0]
        if isinstance(node, ast.Assign) and text in map(ast.unparse, node.targets):
            yield node.lineno, node.value


def _list_sent(source: Script, value: ast.expr, line: int) -> Iterator[ast.expr]:
    """Yield what ranks send each other that an expression reads, also by the loop around it."""
    names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    for node, part in source.find_statements(line):
        if isinstance(node, ast.For) and part == "body":
            targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
            if targets & names:
                names |= {each.id for each in ast.walk(node.iter) if isinstance(each, ast.Name)}
    for call in ast.walk(source.scope(line)):
        if isinstance(call, ast.Call) and name_of(call.func) in _GATHERS and len(call.args) > 1:
            given = {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
            if given & names:
                yield call.args[1]


def _is_sorted(source: Script, line: int) -> bool:
    """Whether the names that a line lists are put in their own order, there or behind it."""
    order = _find_order(source, line)
    return "sorted(" in source.text(line) or (bool(order) and ".sort()" in source.text(order))


def _find_order(source: Script, line: int) -> int:
    """Return the line that puts what a line lists in an order, in place; 0 for none."""
    names = {
        ast.unparse(each)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and node.lineno == line
        for each in node.targets
    }
    found = [
        call.lineno
        for call in ast.walk(source.scope(line))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "sort"
        and ast.unparse(call.func.value) in names
        and call.lineno > line
    ]
    return min(found, default=0)
