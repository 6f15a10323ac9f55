"""`missing_participant`: a collective that a member never reaches."""

from __future__ import annotations

from msgspec.structs import replace

from torch_scenarios.errors import Clause, diagnosis
from torch_scenarios.model.process import Call
from torch_scenarios.reference.matching import Joining, Meeting
from torch_scenarios.reference.state import Run
from torch_scenarios.reference.symptoms import Symptom, several
from torch_scenarios.reference.waits import (
    AtRest,
    Futures,
    is_gone,
)

EXPLANATIONS = (
    diagnosis(
        "missing_participant",
        "A collective, or `new_group`, that a member of the group never reaches.",
        "A collective needs every member of its group; those who came wait until their timeout.",
        "let every member take the step, or make a group of those who do.",
        """\
world_size: 3
tensors:
  x: [1, 2]
steps:
  - ranks: [0, 1]
    all_reduce: {tensor: x}
expect:
  outcome: deadlock
  blocked: {0: all_reduce, 1: all_reduce}
  diagnosis: missing_participant
""",
        """\
world_size: 3
groups:
  two: [0, 1]
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, group: two}
""",
    ),
)


def find(rest: AtRest) -> list[Symptom]:
    """Find collectives that a member never reaches, whether or not someone is stuck for it."""
    run, futures = rest.run, rest.futures
    found = []
    for meeting in run.meetings.all():
        if len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        joining = meeting.joined[min(meeting.joined)]
        absent = [rank for at, rank in enumerate(meeting.group.ranks) if at not in meeting.joined]
        never = [rank for rank in absent if futures.brings(joining, rank) == "never"]
        if never:
            excused = all(is_gone(run, rank) for rank in never)
            found.append(
                replace(
                    _report_missing(run, futures, meeting, joining, tuple(never)), optional=excused
                )
            )
    return found


def _report_missing(
    run: Run,
    futures: Futures,
    meeting: Meeting,
    joining: Joining,
    never: tuple[int, ...],
) -> Symptom:
    present = sorted(other.rank for other in meeting.joined.values())
    alone = len(never) == 1
    skipped = _find_skipped(run, futures, joining, never[0])
    waiting = f"{several(present)} {'waits' if len(present) == 1 else 'wait'}"
    call = joining.call
    if skipped is None:
        words = f"{several(never)} never enter{'s' if alone else ''} `{call.label}`"
        clauses = [Clause(words, call.mark, f", where {waiting}")]
    else:
        missed = (
            f", and so never make{'s' if alone else ''} operation {meeting.position + 1} on "
            f"{meeting.group.name}"
        )
        skips = f"{several(never)} skip{'s' if alone else ''} `{skipped.label}`"
        clauses = [
            Clause(skips, skipped.mark, missed),
            Clause(f"{waiting} for it in `{call.label}`", call.mark),
        ]
    return Symptom(
        name="missing_participant",
        clauses=tuple(clauses),
        kind=f"missing:{meeting.group.key}:{joining.call.step.index}:{never}",
        index=joining.call.step.index,
        iteration=joining.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


def _find_skipped(run: Run, futures: Futures, joining: Joining, absent: int) -> Call | None:
    """Return the first call on the group that `absent` skips, if it takes the one waited in.

    Collectives meet by their number on the group: a rank that leaves one out is in each later one
    too early, and what it lacks in the end is not one of the steps that it skipped.
    """
    key = joining.meeting.group.key
    taken = list(run.meetings.calls(key, absent))
    taken += [call for call in futures.of(absent) if call.entry.group.key == key]
    instances = {(call.step.index, call.iteration) for call in taken}
    if (joining.call.step.index, joining.call.iteration) not in instances:
        return None
    mine = run.meetings.calls(key, joining.rank)
    return next((own for own in mine if (own.step.index, own.iteration) not in instances), None)
