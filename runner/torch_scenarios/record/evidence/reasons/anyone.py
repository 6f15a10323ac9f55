"""A rank that receives from anyone, and to whom nobody sends any more."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import short, times
from torch_scenarios.record.evidence.reasons.loop import loop_of
from torch_scenarios.record.format import RankRecord, RecordedCall
from torch_scenarios.verdict import Finding


def explain_anyone(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that a program is stuck, with the receive from anyone that has no sender."""
    if finding.diagnosis is not None or "deadlock" not in finding.prose:
        return finding
    for rank, record in sorted(records.items()):
        last = record.calls[-1] if record.calls else None
        if last is None or last.operation != "recv" or last.peer is not None:
            continue
        taken = sum(
            each.operation == "recv" and each.place == last.place for each in record.calls[:-1]
        )
        clauses = [
            Clause(
                f"rank {rank} has received {times(taken)} at {last.place.short(folder)}, and waits "
                "there for one message more"
            )
        ]
        clauses += [
            Clause(f"rank {other} has sent to it {times(count)}, and is {where}")
            for other, each in sorted(records.items())
            if other != rank
            for count, where in [_sent(each, rank, folder)]
        ]
        fix = f"let rank {rank} receive as often as the others send to it"
        loop = loop_of(last.place.frames, [])
        if loop is not None:
            text, line, file = loop
            fix += f": look at the turns of `{text}` ({short(((file, line, ''),), folder)})"
        return replace(
            finding,
            code="diagnosis_undeclared",
            diagnosis="unmatched_recv",
            prose=f"rank {rank} receives from anyone, and no rank sends to it any more",
            notes=tuple(clauses),
            ranks=(rank,),
            fix=f"{fix}.",
            help=(f"{fix}.",),
        )
    return finding


def _sent(record: RankRecord, rank: int, folder: str) -> tuple[int, str]:
    """Return how often a rank has sent to another one, and where it is."""
    count = sum(each.operation == "send" and each.peer == rank for each in record.calls)
    last = record.items[-1] if record.items else None
    place = last.place.short(folder) if last is not None and hasattr(last, "place") else ""
    what = last.operation if isinstance(last, RecordedCall) else "its last call"
    where = f"{'in' if record.inside else 'past'} {what}" + (f" ({place})" if place else "")
    return count, where
