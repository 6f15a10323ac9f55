"""What an operation leaves on each rank: the reference semantics applied to those who met.

A collective's result is computed once all members are there; a member that needs fewer (a
broadcast's leaf needs the source only) gets its own earlier, with the absent ones left out of
account. Arguments that disagree leave everything undefined that the operation writes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.operations.base import Collective
from runner.operations.entries import Entry, Undefined
from runner.reference.findings import Finding
from runner.reference.needing import moves_nothing, needs
from runner.reference.slack import slack_of
from runner.reference.telling import clipped, odd_first, place
from runner.reference.values import frozen, frozen_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.operations.entries import Disagreement
    from runner.reference.meetings import Meeting
    from runner.reference.posts import Joining
    from runner.reference.simulation import Simulation

#: copies of a collective's arguments that there may be at once: wide ones, results, their bounds
COPIES = 3

ALL_OUTCOMES = frozenset({"completes", "deadlock", "error", "crash"})


def settle(
    simulation: Simulation, meeting: Meeting, joining: Joining, joined: Mapping[int, Joining]
) -> None:
    """Give `joining` what its operation leaves there; `joined` are those who entered it so far."""
    operation = joining.call.operation
    assert isinstance(operation, Collective)  # noqa: S101 -- only these join
    whole = len(joined) == meeting.group.size
    if whole and meeting.settled:
        return
    here = joining.meeting.group.group_rank(joining.rank)
    if not whole and (not _written(joining) or moves_nothing(operation, joining.entry)):
        _freeze(joining)
        return
    involved = (
        dict(joined)
        if whole
        else {at: joined[at] for at in sorted({*needs(operation, joining.entry), here})}
    )
    examine(simulation, meeting, operation, involved)
    taint = next((other.tainted for other in involved.values() if other.tainted), None)
    receivers = joined if whole else {here: joining}
    if meeting.spoiled or taint:
        cause = taint or Undefined(
            cause=f"`{joining.call.label}` with a {meeting.spoiled}", diagnosis=meeting.spoiled
        )
        for other in receivers.values():
            _spoil(other, cause)
    else:
        entries = _entries(meeting, involved, joining)
        simulation.ledger.room(
            (value for entry in entries for value in entry.arguments.values()),
            joining.call.step.mark,
            copies=COPIES,
        )
        results = operation.reference(entries)
        slack = slack_of(operation, entries)
        for at, other in receivers.items():
            if other.done_s is None:
                other.outcome = [
                    (name, frozen(value), slack[at].get(name) if slack else None)
                    for name, value in results[at].items()
                ]
    meeting.settled = whole
    if not whole:
        _freeze(joining)


def _freeze(joining: Joining) -> None:
    """Keep what a rank contributed, because it goes on and may change it."""
    joining.entry = replace(joining.entry, arguments=frozen_arguments(joining.entry))


def _written(joining: Joining) -> list[str]:
    """Return the arguments that the operation stores into on this rank."""
    operation, entry = joining.call.operation, joining.call.entry
    assert operation is not None  # noqa: S101 -- only operations join
    return [
        param.name
        for param in operation.params
        if operation.writes(param, entry) and entry.arguments.get(param.name) is not None
    ]


def _spoil(joining: Joining, cause: Undefined) -> None:
    joining.outcome = [(name, cause, None) for name in _written(joining)]


def _entries(meeting: Meeting, involved: Mapping[int, Joining], stand_in: Joining) -> list[Entry]:
    entries = []
    for at, rank in enumerate(meeting.group.ranks):
        if at in involved:
            entries.append(involved[at].entry)
        else:
            entries.append(replace(stand_in.entry, rank=rank))
    return entries


def examine(
    simulation: Simulation,
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
    opened: frozenset[str] = ALL_OUTCOMES,
) -> None:
    """Find what the arguments of those who met disagree on; then any of `opened` may come."""
    if len(involved) < 2:  # noqa: PLR2004 -- one alone agrees
        return
    entries = [involved[at].entry for at in sorted(involved)]
    for disagreement in operation.disagreements(entries):
        meeting.spoiled = meeting.spoiled or disagreement.diagnosis
        simulation.opened |= opened
        simulation.findings.append(_disagreement(meeting, operation, involved, disagreement))


def examine_present(simulation: Simulation) -> None:
    """Find what those disagree on who entered a collective that not all of them entered.

    No disagreement brings the part of a member who never comes: only a root that is one for itself
    may do without it, and nothing completes where a rank has ended.
    """
    ended = any(state.state in {"died", "raised"} for state in simulation.ranks)
    for meeting in simulation.meetings.all():
        if meeting.spoiled or len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        operation = meeting.joined[min(meeting.joined)].call.operation
        assert isinstance(operation, Collective)  # noqa: S101 -- only these join
        lacking = ended or operation.rooted is None
        opened = ALL_OUTCOMES - {"completes"} if lacking else ALL_OUTCOMES
        examine(simulation, meeting, operation, meeting.joined, opened)


def _disagreement(
    meeting: Meeting,
    operation: Collective,
    involved: Mapping[int, Joining],
    disagreement: Disagreement,
) -> Finding:
    values = disagreement.values
    counted = Counter(values.values())
    usual = counted.most_common(1)[0][0]
    odd = tuple(meeting.group.ranks[at] for at in sorted(values) if values[at] != usual)
    parts: dict[str, list[int]] = {}
    for at in sorted(values):
        parts.setdefault(values[at], []).append(meeting.group.ranks[at])
    places = _places(involved, values)
    told = odd_first(parts, lambda value: f": {clipped(value)}{places[value]}")
    first = involved[min(involved)].call
    return Finding(
        name=disagreement.diagnosis,
        prose=(
            f"the members of {meeting.group.name} enter `{operation.name}` with different "
            f"{disagreement.what}: {told}"
        ),
        kind=f"{disagreement.diagnosis}:{meeting.group.key}:{meeting.position}",
        index=min(joining.call.step.index for joining in involved.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(joining.rank for joining in involved.values())),
        odd=odd,
    )


def _places(involved: Mapping[int, Joining], values: Mapping[int, str]) -> dict[str, str]:
    """Return, by value, the place of the first call that has it."""
    found: dict[str, str] = {}
    for at in sorted(values):
        if values[at] not in found:
            found[values[at]] = place(involved[at]) if at in involved else ""
    return found
