"""What is wrong with a program that came to rest: one file a diagnosis, and one table of them.

What the walk comes across on the way it notes itself, and no file here finds it: arguments that
disagree, refused calls, second waits (:mod:`torch_scenarios.reference.rules`), tensors that two
operations touch and undefined values (:mod:`torch_scenarios.reference.buffers`), orders of arrival
that end differently (:mod:`torch_scenarios.reference.schedules`), models that are not trained as
one process would train them (:mod:`torch_scenarios.strategies`). Nor is any of them asked of a
program that many ranks take together to its end (:mod:`torch_scenarios.reference.vector`): what is
wrong with a program that completes, cohorts must leave to the walk. What each of them means, with a
wrong program and its correction, is a page of `explain/pages/diagnosis`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from torch_scenarios.model.trace import Diagnosis, WaitEdge
from torch_scenarios.reference.diagnoses import (
    call_mismatch,
    circular_wait,
    group_creation,
    missing_participant,
    missing_wait,
    unmatched_message,
)
from torch_scenarios.reference.symptoms import PostEdge, Symptom
from torch_scenarios.reference.waits import Futures, Need, StoppedRun, needs_of
from torch_scenarios.reference.walk import Simulation

#: what finds a diagnosis in a run at rest, in this order: the last looks at what the others found
FINDERS: tuple[Callable[[StoppedRun], list[Symptom]], ...] = (
    call_mismatch.find,
    missing_participant.find,
    group_creation.find,
    unmatched_message.find,
    circular_wait.find,
    missing_wait.find,
)


def faults(simulation: Simulation, futures: Futures) -> tuple[list[Symptom], list[Need]]:
    """Return every finding about a run that has come to rest, and what its ranks wait for."""
    stuck = [state for state in simulation.ranks if state.state == "blocked"]
    needs = needs_of(simulation, stuck)
    simulation.judge_the_present()
    _open_what_died_with_a_rank(simulation)
    rest = StoppedRun(run=simulation, futures=futures, needs=needs, found=list(simulation.findings))
    for find in FINDERS:
        rest.found.extend(find(rest))
    return rest.found, needs


def _open_what_died_with_a_rank(simulation: Simulation) -> None:
    """Leave open whether others finish what an ended rank had started and did not wait for.

    Its part may have been done by then, or never be.
    """
    for state in simulation.ranks:
        if state.state in {"died", "raised"} and any(not work.waited for work in state.works):
            simulation.opened |= {"error", "deadlock"}


# Findings -> diagnoses: one for each name of each mistake, the first divergent step first.

#: among the names of one mistake: which comes first, which follow the one they accompany
RANKING = {"message_race": -1, "buffering_hazard": 1, "missing_wait": 2}


#: waits that explain one diagnosis
EXPLAINING = 64


def diagnose(findings: Sequence[Symptom], needs: Sequence[Need]) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of a program; `needs` are what its stuck ranks wait for."""
    ordered = _order(_merge(findings))
    numbers: dict[str, int] = {}
    for finding in ordered:
        numbers.setdefault(finding.kind, len(numbers))
    waits = _Waits(needs)
    return tuple(
        Diagnosis(
            name=finding.name,
            clauses=finding.clauses,
            index=finding.index,
            iteration=finding.iteration,
            ranks=finding.ranks,
            odd=finding.odd,
            waits=waits.of(finding),
            finding=numbers[finding.kind],
            also=finding.also,
            optional=finding.optional,
            argument=finding.argument,
        )
        for finding in ordered
    )


def _merge(findings: Sequence[Symptom]) -> list[Symptom]:
    """Put the sightings of one mistake together: the first step's words, everyone's ranks.

    Of several sightings in one step the one of most ranks is reported, whichever came first: it
    knows which rank is odd. Among those of as many ranks, it is that of the lowest.
    """
    together: dict[tuple[str, str], list[Symptom]] = {}
    for finding in findings:
        together.setdefault((finding.name, finding.kind), []).append(finding)
    return [
        replace(
            min(same, key=lambda finding: (finding.index, -len(finding.ranks), finding.ranks)),
            ranks=tuple(sorted({rank for each in same for rank in each.ranks})),
        )
        for same in together.values()
    ]


def _order(findings: list[Symptom]) -> list[Symptom]:
    first: dict[str, tuple[int, str, int]] = {}
    for finding in findings:
        series = finding.kind.partition(":")[0]
        place = (finding.index, series, min(finding.ranks, default=-1))
        first[finding.kind] = min(place, first.get(finding.kind, place))
    return sorted(
        findings,
        key=lambda finding: (
            first[finding.kind],
            finding.kind,
            RANKING.get(finding.name, 0),
            finding.index,
        ),
    )


class _Waits:
    """The waits that explain findings, looked up by the ranks that they concern."""

    def __init__(self, needs: Sequence[Need]) -> None:
        self._needs = needs
        self._of: dict[int, list[int]] = {}
        self._edges: dict[int, list[PostEdge]] = {}
        for at, need in enumerate(needs):
            for rank in dict.fromkeys(post.rank for post in need.waiters):
                self._of.setdefault(rank, []).append(at)

    def of(self, finding: Symptom) -> tuple[WaitEdge, ...]:
        """Return the waits that explain a finding: its own path, else those of its ranks."""
        if finding.path:
            return tuple(edge.wait() for edge in finding.path[:EXPLAINING])
        concerned = set(finding.ranks)
        found: list[WaitEdge] = []
        for at in sorted({at for rank in concerned for at in self._of.get(rank, ())}):
            if len(found) >= EXPLAINING:
                break
            if at not in self._edges:
                self._edges[at] = self._needs[at].edges()
            found += [edge.wait() for edge in self._edges[at] if edge.post.rank in concerned]
        return tuple(found[:EXPLAINING])
