"""A condition that compares a text with a number, so that it goes one way on every rank.

What the environment holds is text, and so is an option without `type=`::

    if os.environ["RANK"] == 0:     never true: rank 0 does what the others do
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason
from torch_scenarios.record.evidence.script import Script, script_at
from torch_scenarios.record.format import BranchTaken, Decision, RankRecord

#: names of what the environment is read by
_ENVIRONMENT = frozenset({"os.environ", "environ"})
_READS = frozenset({"os.environ.get", "environ.get", "os.getenv", "getenv"})


def find_text(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the condition of a function that ranks come from which compares text with a number."""
    ways: dict[Decision, list[BranchTaken]] = {}
    for record in records.values():
        for way in record.ways:
            if way.decision.kind in {"if", "while", "and", "or"}:
                ways.setdefault(way.decision, []).append(way)
    for decision, taken in ways.items():
        source = script_at(decision.file)
        if source is None or not _leads_to(source, decision, records):
            continue
        for compared, number in _list_compared(source, decision.line):
            if not _is_text(source, compared, taken):
                continue
            place = source.place(decision.line, folder)
            text = ast.unparse(compared)
            went = {way for each in taken for way in ([True] * each.yes + [False] * each.no)}
            on = f"is true on {'every' if went == {True} else 'no'} rank" * (len(went) == 1)
            words = (
                f"`{decision.text}` ({place}) {on or 'compares a text with a number'}: `{text}` is "
                f"a text there, and never equal to the number {number}"
            )
            fix = f"compare numbers: `int({text})` ({place})."
            return Clause(words), fix
    return None


def _leads_to(source: Script, decision: Decision, records: Mapping[int, RankRecord]) -> bool:
    """Whether a decision is in a function that a rank's last call, or its error, comes from."""
    scope = source.scope(decision.line)
    return any(
        file == decision.file and source.scope(line) is scope
        for record in records.values()
        for frames in (
            record.raised_at.frames,
            record.items[-1].place.frames if record.items else (),
        )
        for file, line, _ in frames
    )


def _list_compared(source: Script, line: int) -> Iterator[tuple[ast.expr, int]]:
    """Yield what is compared with a whole number in a line, and the number."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Compare) or node.lineno != line or len(node.ops) != 1:
            continue
        if isinstance(node.ops[0], ast.Eq | ast.NotEq):
            for one, other in (
                (node.left, node.comparators[0]),
                (node.comparators[0], node.left),
            ):
                if isinstance(other, ast.Constant) and type(other.value) is int:
                    yield one, other.value


def _is_text(source: Script, value: ast.expr, taken: list[BranchTaken]) -> bool:
    """Whether an expression is a text: it is read of the environment, or was seen to be one."""
    name = ast.unparse(value)
    seen = {
        shown
        for way in taken
        for at, shown in zip(way.decision.names, way.values, strict=False)
        if at == name and shown is not None
    }
    if seen:
        return all(each.startswith(("'", '"')) for each in seen)
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value) in _ENVIRONMENT
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in _READS
    return False
