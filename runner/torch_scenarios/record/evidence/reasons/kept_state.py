"""What an object keeps of a rank's rows, and a framework gathers: some ranks keep fewer of them.

torchmetrics gathers each list of a metric item by item, and one that is empty not at all::

    if mask.any():                     rank 1 never goes into it
        metric.update(x[mask], y)      so its metric keeps nothing
    metric.compute()                   rank 0 gathers what it keeps, rank 1 goes on
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, count_turns, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.reasons.value_source import find_argument_of, trace_value
from torch_scenarios.record.evidence.script import Script, end_of, name_of, place_at, script_at
from torch_scenarios.record.format import Decision

#: methods by which an object, or a list that it has, is given something to keep
_KEEPS = frozenset({"update", "append", "add", "extend", "add_batch", "put", "forward"})


def find_kept_state(parted: DecidedParting) -> Reason | None:
    """Return the last `if` by which an object is given other rows to keep on some ranks.

    A side of the ranks is in a framework, in the line that asks the object for what it makes of all
    rows; others may be past that.
    """
    for ranks, frames in parted.parting.sides:
        source = script_at(frames[0][0]) if frames else None
        if source is None or not parted.parting.calls[ranks[0]].place.via:
            continue
        where, line = short(frames, parted.folder), frames[0][1]
        owners = {
            name_of(call.func.value): call.func.value
            for call in source.calls(line)
            if isinstance(call.func, ast.Attribute) and name_of(call.func.value)
        }
        made = {name for owner in owners.values() for name in _list_made(source, owner, frames)}
        for decision, own in reversed([*parted.tallies(whole=True).items()]):
            if decision.kind != "if" or len({each.yes for each in own.values()}) < 2:
                continue
            kept = _find_kept(decision, {*owners}, made)
            if kept is not None and kept[0] != line:  # it does not ask and keep in one line
                return _tell_kept(parted, decision, kept, where)
    return None


def _list_made(source: Script, owner: ast.expr, frames: Frames) -> Iterator[str]:
    """Yield what an object is made by: where it is set, or where a caller passes it."""
    values = [
        node.value
        for script, at in trace_value(frames, owner)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == at
    ]
    if isinstance(owner, ast.Name):
        values.append(find_argument_of(source, owner.id, frames[0][1], frames[1:]))
    yield from (name_of(each.func) for each in values if isinstance(each, ast.Call))


def _tell_kept(
    parted: DecidedParting, decision: Decision, kept: tuple[int, str, str], where: str
) -> Reason:
    """Return that a line, by an `if`, gives an object more to keep on some ranks."""
    at, text, name = kept
    own = parted.tallies(whole=True)[decision]
    place = place_at(decision.file, at, parted.folder)
    values = word_values(parted, decision, own)
    words = (
        f"{count_turns(parted, decision, own)}{f', where {values}' if values else ''}: it "
        f"decides on `{text}` ({place}), and {where} gathers what {name} keeps"
    )
    fix = (
        f"let {name} keep as many parts on every rank: come to `{text}` ({place}) in each turn, "
        "also with no rows (a tensor of no rows, `torch.zeros(0)`), or keep sums, which every rank "
        "has."
    )
    return Clause(words), fix


def _find_kept(decision: Decision, owners: set[str], made: set[str]) -> tuple[int, str, str] | None:
    """Return the line under an `if`, or past it, that gives an object something to keep.

    With the line are its text and the object's name, which is one of the owners; of a class of the
    scripts, of which one is made, it is what the object has.
    """
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if source is None or not isinstance(node, ast.If):
        return None
    own = _class_of(source, decision.line)
    for part in _list_parts(source, node):
        for each in ast.walk(part):
            call = each if isinstance(each, ast.Call) else None
            function = call.func if call is not None else None
            if call is None or not isinstance(function, ast.Attribute):
                continue
            holder = ast.unparse(function.value)
            name = name_of(function.value) or holder
            is_held = own in made and holder.startswith("self.")
            if function.attr in _KEEPS and (name in owners or is_held):
                return call.lineno, source.text(call.lineno), f"`{holder}`"
    return None


def _list_parts(source: Script, node: ast.If) -> Iterator[ast.stmt]:
    """Yield the statements that an `if` decides on: its own, and those past its way out."""
    yield from (*node.body, *node.orelse)
    if source.jump_under(node.test.lineno) is None:
        return
    around = [each for each, name in source.find_statements(node.lineno) if each is not node]
    loop = next((each for each in around if isinstance(each, ast.For | ast.While)), None)
    whole = loop if loop is not None else source.scope(node.lineno)
    for each in ast.walk(whole):
        if isinstance(each, ast.stmt) and each.lineno > end_of(node):
            yield each


def _class_of(source: Script, line: int) -> str:
    """Return the name of the class that a line is in; nothing outside of one."""
    inside = [
        each
        for each in ast.walk(source.tree)
        if isinstance(each, ast.ClassDef) and each.lineno <= line <= end_of(each)
    ]
    return inside[-1].name if inside else ""
