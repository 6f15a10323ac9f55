"""A signal that a rank sends itself, or another rank: a watchdog of the script's own."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Tally, list_values
from torch_scenarios.record.evidence.script import place_at, script_at
from torch_scenarios.record.format import Decision, FileChange, RankRecord
from torch_scenarios.verdict import Finding


def explain_signal(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that a signal ended ranks, with the line of the script that sends it."""
    for rank in finding.ranks if finding.code == "outcome_differs" else ():
        sent = _find_sender(records, rank)
        if sent is None:
            continue
        sender, change = sent
        file, line, text = change.place.frames[0]
        target = "itself" if sender == rank else f"rank {rank}"
        place = place_at(file, line, folder)
        words = f"rank {sender} sends it to {target}: `{text}` ({place})"
        fix = f"look at why rank {sender} comes to {place}"
        around = _find_condition(records[sender], file, line)
        if around is not None:
            decision, tally = around
            values = list_values(decision, {sender: tally})
            there = place_at(decision.file, decision.line, folder)
            words += f", under `{decision.text}` ({there})" + (f", where {values}" * bool(values))
            fix = f"look at why `{decision.text}` ({there}) is true on rank {sender}"
        fix += ": the others wait for a rank that is gone. A watchdog's limit must be longer than"
        fix += " anything that the rank does between two of its heartbeats."
        return replace(finding, notes=(Clause(words), *finding.notes), fix=fix, help=(fix,))
    return finding


def _find_sender(records: Mapping[int, RankRecord], rank: int) -> tuple[int, FileChange] | None:
    """Return the rank that has sent the signal by which another one died, and where."""
    if rank not in records:
        return None
    died, process = records[rank].died, records[rank].about.get("pid")
    for sender, record in sorted(records.items(), key=lambda each: each[0] != rank):
        for change in record.changes[::-1] if died else ():
            if change.what == "kills" and change.path == f"{died} to {process}":
                return (sender, change) if change.place.frames else None
    return None


def _find_condition(record: RankRecord, file: str, line: int) -> tuple[Decision, Tally] | None:
    """Return the innermost `if` around a line that a rank has found true, with what it read."""
    source = script_at(file)
    for node, part in source.find_statements(line) if source is not None else ():
        for way in reversed(record.ways):
            is_there = isinstance(node, ast.If) and part == "body"
            at = node.test.lineno if isinstance(node, ast.If) else 0
            if is_there and (way.decision.file, way.decision.line) == (file, at) and way.yes:
                return way.decision, Tally(yes=way.yes, no=way.no, values=way.values)
    return None
