"""A name under which some ranks log, and which a framework averages over all of them.

Lightning reduces what is logged with `sync_dist=True` name by name, at the end of an epoch::

    return {f"recall/{c}": ... for c in y.unique()}     a rank without a class has no name for it
    self.log_dict(found, sync_dist=True)                later: one rank reduces three, one two
"""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.notes.decision import averages_names
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import Decision
from torch_scenarios.verdict.finding import ranks_text

#: names that are shown for the ranks that have them alone
MOST_NAMES = 4


def find_logged_name(parted: DecidedParting) -> Reason | None:
    """Return the line that logs other names on some ranks; None where all log the same.

    The ranks part in a framework: it is there that names are averaged, one by one.
    """
    if not all(call.place.via for call in parted.parting.calls.values()):
        return None
    for decision in parted.tallies(whole=True, alike=True):
        alone = _list_alone(parted, decision) if decision.kind == "logs" else {}
        if not alone:
            continue
        shown = "; ".join(
            f"{', '.join(f'`{name}`' for name in names[:MOST_NAMES])}"
            f"{' and others' * (len(names) > MOST_NAMES)} on {ranks_text([*ranks])} alone"
            for ranks, names in alone.items()
        )
        place = parted.place(decision)
        words = (
            f"`{decision.text}` ({place}) logs other names on some ranks: {shown}"
            f"{_tell_made(parted, decision)}; with `sync_dist` the framework averages each name "
            "over all ranks, by one call for each"
        )
        fix = (
            f"log the same names on every rank ({place}): also those for which a rank has seen "
            "nothing, with a neutral value, or all of them as one tensor."
        )
        return Clause(words), fix
    return None


def _list_alone(parted: DecidedParting, decision: Decision) -> dict[tuple[int, ...], list[str]]:
    """Return the names that a line has logged on some ranks alone, by these."""
    logged: dict[str, list[int]] = {}
    for rank in sorted(parted.ranks):
        names = dict.fromkeys(
            name
            for way in parted.records[rank].ways
            if way.decision == decision and parted.is_within(rank, way.before, whole=True)
            for name in way.values
            if name is not None
        )
        for name in names:
            logged.setdefault(name, []).append(rank)
    alone: dict[tuple[int, ...], list[str]] = {}
    for name, ranks in logged.items():
        if len(ranks) < len(parted.ranks):
            alone.setdefault(tuple(ranks), []).append(name)
    return alone


def _tell_made(parted: DecidedParting, decision: Decision) -> str:
    """Return in words the line that makes the names; nothing where that is the line itself."""
    source = script_at(decision.file)
    for call in source.calls(decision.line) if source is not None else ():
        if source is None or not averages_names(call):
            continue
        value = call.args[0]
        given = source.returned(value) if isinstance(value, ast.Call) else None
        where, line = (given[0], given[1].lineno) if given is not None else (source, 0)
        line = line or source.assignment(value, decision.line)
        if line:
            place = where.place(line, parted.folder)
            return f", which `{where.text(line)}` ({place}) makes"
    return ""
