"""Findings -> diagnoses: one for each name of each fault, the first divergent step first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.trace import Diagnosis, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.reference.findings import Finding
    from runner.reference.waits import Need

#: among the names of one fault: which comes first, which follow the one they accompany
RANKING = {"message_race": -1, "buffering_hazard": 1, "missing_wait": 2}

#: waits that explain one diagnosis
EXPLAINING = 64


def diagnosed(findings: Sequence[Finding], needs: Sequence[Need]) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of a program; `needs` are what its stuck ranks wait for."""
    ordered = _ordered(_merged(findings))
    numbers: dict[str, int] = {}
    for finding in ordered:
        numbers.setdefault(finding.kind, len(numbers))
    return tuple(
        Diagnosis(
            name=finding.name,
            prose=finding.prose,
            index=finding.index,
            iteration=finding.iteration,
            ranks=finding.ranks,
            odd=finding.odd,
            waits=_waits(finding, needs),
            finding=numbers[finding.kind],
            also=finding.also,
            optional=finding.optional,
        )
        for finding in ordered
    )


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Put the sightings of one fault together: the first step's words, everyone's ranks."""
    together: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        together.setdefault((finding.name, finding.kind), []).append(finding)
    return [
        replace(
            min(same, key=lambda finding: finding.index),
            ranks=tuple(sorted({rank for each in same for rank in each.ranks})),
        )
        for same in together.values()
    ]


def _ordered(findings: list[Finding]) -> list[Finding]:
    first: dict[str, int] = {}
    for finding in findings:
        first[finding.kind] = min(finding.index, first.get(finding.kind, finding.index))
    return sorted(
        findings,
        key=lambda finding: (
            first[finding.kind],
            finding.kind,
            RANKING.get(finding.name, 0),
            finding.index,
        ),
    )


def _waits(finding: Finding, needs: Sequence[Need]) -> tuple[Wait, ...]:
    """Return the waits that explain a finding: its own path, else those of its ranks."""
    if finding.path:
        return tuple(edge.wait() for edge in finding.path[:EXPLAINING])
    concerned = set(finding.ranks)
    found: list[Wait] = []
    for need in needs:
        if len(found) >= EXPLAINING:
            break
        found += [edge.wait() for edge in need.edges() if edge.post.rank in concerned]
    return tuple(found[:EXPLAINING])
